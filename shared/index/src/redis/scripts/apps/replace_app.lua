-- Stores an app in place of a record that cannot be read. KEYS[1]: the apps. ARGV: the app's id, its
-- generation, the record that was read, and the JSON in its place. Answers 1; or 0 if there is another
-- record by now, or another generation.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[3] then return 0 end
if (redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
return 1
