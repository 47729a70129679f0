-- Stores a new app unless there is one, or one is on its way here. KEYS[1]: the apps. ARGV: the app's id, the generation in
-- its JSON, and that JSON. Answers 'created', 'exists', or the generation that the app must have
-- instead.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'exists' end
if redis.call('HEXISTS', KEYS[1], '@+' .. ARGV[1]) == 1 then return 'exists' end
local generation = redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0'
if generation ~= ARGV[2] then return generation end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 'created'
