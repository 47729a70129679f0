-- Replaces the record of an app. KEYS[1]: the apps. ARGV: the app's id, its generation and its
-- JSON. Answers 1; or 0 if there is no such app, or only one of another generation.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if (redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
