-- Forgets entries of one page of the ledger that are as they were read. KEYS[1]: the page; KEYS[2]: the
-- list with the page; KEYS[3]: the latest time of acceptance among entries of this part that were
-- forgotten; then an entry with fields for each that is forgotten. ARGV: what the list says of the
-- page; how many records follow; the latest time at which a message of them was accepted, in
-- milliseconds; of each record its field and what is there; then of each entry with fields its
-- field on the page, what is there, and its copy (empty if the entry is gone).
--
-- A page that is empty then is gone, and leaves the list. One that is not goes to the end of it, as if it
-- were begun now: what is left is open, and may be forgotten later. Answers how many were forgotten.

local records, forgotten = tonumber(ARGV[2]), 0
for i = 4, 3 + 2 * records, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    forgotten = forgotten + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
local at = 4 + 2 * records
for number = 4, #KEYS do
  local field, stub, copy = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_same = (redis.call('HGET', KEYS[number], 'copy') or '') == copy
  if is_same and redis.call('HGET', KEYS[1], field) == stub then
    redis.call('DEL', KEYS[number])
    forgotten = forgotten + redis.call('HDEL', KEYS[1], field)
  end
  at = at + 3
end
redis.call('LREM', KEYS[2], 1, ARGV[1])
local now = clock()
local left = redis.call('PTTL', KEYS[1])
if left > 0 then keep_page(KEYS[1], KEYS[2], true, now + left, now) end
if forgotten > 0 then
  local until_now = tonumber(redis.call('GET', KEYS[3]) or 0)
  if tonumber(ARGV[3]) > until_now then redis.call('SET', KEYS[3], ARGV[3]) end
end
return forgotten
