-- Begins a ledger entry with fields of its own unless there is one. KEYS[1]: the entry; KEYS[2]: its
-- page; KEYS[3]: the list of pages. ARGV: when it may be forgotten and the shortest time it is kept,
-- both in milliseconds; the copy whose entry is replaced, or nothing; the field of its record, what
-- says there that the entry has fields of its own, and the record that it replaces, or nothing; then
-- fields and values, the app first. Answers the entry, or the record
-- if the page has one that is neither the mark of an entry with fields nor the one to be replaced.
--
-- An entry without a 'copy' is a recall that came before the message: the message then begins
-- recalled, if the recall is of its own app. One that was recalled is never replaced.

local record = redis.call('HGET', KEYS[2], ARGV[4])
if record and record ~= ARGV[5] and record ~= ARGV[6] then return record end
local copy = redis.call('HGET', KEYS[1], 'copy')
local recalled = redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1
if not copy or (copy == ARGV[3] and not recalled) then
  -- Only what is there is deleted: a script that has deleted may write without memory.
  local app = redis.call('HGET', KEYS[1], 'app')
  if copy or (app and app ~= ARGV[8]) then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], unpack(ARGV, 7))
  local added = redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
  local now = clock()
  local wanted = math.max(tonumber(ARGV[1]), now + tonumber(ARGV[2]))
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', wanted))
  keep_page(KEYS[2], KEYS[3], redis.call('HLEN', KEYS[2]) == added, wanted, now)
end
return redis.call('HGETALL', KEYS[1])
