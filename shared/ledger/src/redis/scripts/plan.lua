-- Stores a plan unless there is one. KEYS[1]: the expanded entry. ARGV: the plan, and the number of
-- its partitions, which is stored as 'partitions'. Answers the plan in force; nothing if there is no
-- entry.

if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if redis.call('HSETNX', KEYS[1], 'plan', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[1], 'partitions', ARGV[2])
end
return redis.call('HGET', KEYS[1], 'plan')
