-- Evicts entries of one ledger page that are still as they were read. KEYS[1]: the page; KEYS[2]:
-- the list with the page; KEYS[3]: the latest time of acceptance among the evicted entries of the
-- stripe; then the expanded entries to evict. ARGV: the page's element in the list; how many
-- records follow; the latest time at which a message of them was accepted, in milliseconds; for
-- each record its field and its bytes; then for each expanded entry its field on the page, the stub
-- that is there, and the entry's deduplication nonce (empty if the entry does not exist).
--
-- A page that is then empty does not exist any more, and leaves the list. A page that has entries
-- left moves to the end of the list as if it had begun now: its entries are open, and may be
-- evicted later. Only of a page with more entries than issued ids can put there a part was read: while
-- that helps it stays where it is, so that the rest of it goes next. Answers how many entries were
-- evicted.

local records, evicted = tonumber(ARGV[2]), 0
for i = 4, 3 + 2 * records, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    evicted = evicted + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
local at = 4 + 2 * records
for number = 4, #KEYS do
  local field, stub, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_same = (redis.call('HGET', KEYS[number], 'copy') or '') == nonce
  if is_same and redis.call('HGET', KEYS[1], field) == stub then
    redis.call('DEL', KEYS[number])
    evicted = evicted + redis.call('HDEL', KEYS[1], field)
  end
  at = at + 3
end
redis.call('LREM', KEYS[2], 1, ARGV[1])
local now = clock()
local left = redis.call('PTTL', KEYS[1])
if left > 0 then
  if evicted > 0 and redis.call('HLEN', KEYS[1]) > 256 then
    redis.call('LPUSH', KEYS[2], ARGV[1])
  else
    keep_page(KEYS[1], KEYS[2], true, now + left, now)
  end
end
if evicted > 0 then
  local known = tonumber(redis.call('GET', KEYS[3]) or 0)
  if tonumber(ARGV[3]) > known then redis.call('SET', KEYS[3], ARGV[3]) end
end
return evicted
