-- Expands an entry that is a record. KEYS[1]: the page; KEYS[2]: the expanded entry; then
-- the lists of entries that are kept as long as the entry. ARGV: the
-- field of the record, the record as it was read, the stub that replaces it, and until when the
-- entry is kept, in milliseconds (0: as long as the page); then fields and values. Answers 1 if the
-- record was still the same, else 0, and changes nothing.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV, 5))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
local keep = tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local page = redis.call('PTTL', KEYS[1])
if keep - now > page then
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', keep))
  page = keep - now
end
redis.call('PEXPIREAT', KEYS[2], string.format('%d', now + page))
for list = 3, #KEYS do
  if redis.call('PTTL', KEYS[list]) < page then
    redis.call('PEXPIREAT', KEYS[list], string.format('%d', now + page))
  end
end
return 1
