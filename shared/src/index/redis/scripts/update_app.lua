-- Replaces an app that exists. KEYS[1]: the apps. ARGV: its id and its JSON. Answers 1 or 0.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
