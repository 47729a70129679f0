-- Begins a ledger entry unless there is one. KEYS[1]: the entry. ARGV: when it may be forgotten
-- and the shortest time it is kept, both in milliseconds, then fields and values. Answers the
-- entry.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
  local time = redis.call('TIME')
  local earliest = tonumber(time[1]) * 1000 + tonumber(ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', math.max(tonumber(ARGV[1]), earliest)))
end
return redis.call('HGETALL', KEYS[1])
