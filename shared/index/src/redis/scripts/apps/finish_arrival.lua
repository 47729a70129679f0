-- Puts the record of an app in the place of its arrival. KEYS[1]: the apps. ARGV: the app's id, when
-- it was created, its generation, the attempt, and its JSON. Answers 1; or 0 if no such app is on its
-- way, or another attempt is at it.

local text = redis.call('HGET', KEYS[1], '@+' .. ARGV[1])
if not text then return 0 end
local readable, arrival = pcall(cjson.decode, text)
if not readable or type(arrival) ~= 'table' then return 0 end
if string.format('%d', arrival.created_at or 0) ~= ARGV[2] then return 0 end
if string.format('%d', arrival.generation or 0) ~= ARGV[3] then return 0 end
if (arrival.attempt or '') ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[5])
redis.call('HDEL', KEYS[1], '@+' .. ARGV[1])
return 1
