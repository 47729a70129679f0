-- Removes the record of an app, and counts the removal. KEYS[1]: the apps. ARGV: the app's id, its
-- generation and the next generation. Answers 1; or 0 if there is no such app, or only one of
-- another generation.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if (redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], '@' .. ARGV[1], ARGV[3])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
