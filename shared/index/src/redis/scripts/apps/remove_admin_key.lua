-- Removes a key of the admin API. KEYS[1]: the keys. ARGV: the key's name. Answers 1; or 0 if there is none.

local digest = redis.call('HGET', KEYS[1], ARGV[1])
if not digest then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1], '@' .. digest, '+' .. ARGV[1])
return 1
