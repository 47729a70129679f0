-- Begins an expanded ledger entry unless there is one. KEYS[1]: the entry; KEYS[2]: its page;
-- KEYS[3]: the list of pages; KEYS[4]: the page that the entry has if its own is full; KEYS[5]: the
-- marks of entries that were evicted lately; KEYS[6]: the list of entries that the entry is added to.
-- ARGV: until when the entry is kept at least, and the
-- shortest time for which it is kept from now on, in milliseconds; the deduplication nonce whose entry is
-- replaced, or nothing; the field of its record, the stub that says there that the entry is expanded,
-- and the record that it replaces, or nothing; the mark of its job; a 0 and the member of the list
-- of entries; then fields and values, the app first. Answers the entry; or the record, if the page has one that is neither the stub nor the one to
-- be replaced; or 0 if the entry would begin and the mark is known, and changes nothing then.
--
-- An entry without the field 'dedup_nonce' (the nonce) is a recall that came before the message: the
-- message then begins recalled. An entry that was recalled is never replaced.

local record = redis.call('HGET', KEYS[2], ARGV[4])
if record and record ~= ARGV[5] and record ~= ARGV[6] then return record end
local nonce = redis.call('HGET', KEYS[1], 'dedup_nonce')
local recalled = redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1
if not nonce or (nonce == ARGV[3] and not recalled) then
  if is_evicted(KEYS[5], ARGV[7]) then return 0 end
  -- DEL only if needed: after a DEL, Redis lets the script write without memory.
  if nonce then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], unpack(ARGV, 10))
  local wanted = math.max(tonumber(ARGV[1]), clock() + tonumber(ARGV[2]))
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', wanted))
  add_stub(KEYS[2], KEYS[4], KEYS[3], ARGV[4], ARGV[5], wanted)
  list_entries(KEYS[6], 8, 9, wanted, clock())
end
return redis.call('HGETALL', KEYS[1])
