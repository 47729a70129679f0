-- Stops removals of an app's gone devices. KEYS[1]: the counts of its reports; KEYS[2]: exists if the app was
-- removed. ARGV: until when they were stopped as far as the caller knows, 0 for never, and until when they
-- stop now. Answers 1; or 0 if the app was removed or they were stopped meanwhile.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if tonumber(redis.call('HGET', KEYS[1], 'stopped') or 0) ~= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'stopped', ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[2])
return 1
