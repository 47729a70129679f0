-- Changes a partition and the counts of an expanded entry, if the entry has the deduplication nonce
-- of the message and the partition is in the state that the step follows on. KEYS[1]: the entry;
-- KEYS[2]: its page; KEYS[3]: the page that it has if that one is full; then the lists of entries that
-- are kept as long as the entry. ARGV: the nonce; the field of
-- the state, its old value (empty if there is no field) and its new one; the field of the leftovers and their new value ('keep' leaves them, empty
-- removes them); until when the entry is kept at least (0 leaves that) and the shortest time for
-- which it is kept, in milliseconds; then the counters and what is added to each.
--
-- A server that refuses writes refuses the first one, so nothing is half written. A counter that
-- cannot grow would fail later, so all counters are checked before the first write.

if redis.call('EXISTS', KEYS[1]) == 0 then return 'unknown' end
if redis.call('HGET', KEYS[1], 'dedup_nonce') ~= ARGV[1] then return 'conflict' end
if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then return 'conflict' end
for i = 9, #ARGV, 2 do
  local count = redis.call('HGET', KEYS[1], ARGV[i])
  if count and not (tonumber(count) and tonumber(count) >= 0 and tonumber(count) < 2 ^ 53) then
    return redis.error_reply(CORRUPT .. ' the counter ' .. ARGV[i])
  end
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
if ARGV[6] == '' then
  redis.call('HDEL', KEYS[1], ARGV[5])
elseif ARGV[6] ~= 'keep' then
  redis.call('HSET', KEYS[1], ARGV[5], ARGV[6])
end
if ARGV[7] ~= '0' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000
  local wanted = math.max(tonumber(ARGV[7]), now + tonumber(ARGV[8]))
  if redis.call('PTTL', KEYS[1]) < wanted - now then
    redis.call('PEXPIREAT', KEYS[1], string.format('%d', wanted))
  end
  for key = 2, #KEYS do
    if redis.call('PTTL', KEYS[key]) < wanted - now then
      redis.call('PEXPIREAT', KEYS[key], string.format('%d', wanted))
    end
  end
end
for i = 9, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
if redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1 then return 'recalled' end
return 'saved'
