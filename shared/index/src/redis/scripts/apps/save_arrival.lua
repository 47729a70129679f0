-- Saves the progress of an app's arrival. KEYS[1]: the apps. ARGV: the app's id, when it was created,
-- its attempt, and the arrival as JSON. Answers 1; or 0 if this attempt is not at it any more.

local text = redis.call('HGET', KEYS[1], '@+' .. ARGV[1])
if not text then return 0 end
local readable, arrival = pcall(cjson.decode, text)
if not readable or type(arrival) ~= 'table' then return 0 end
if string.format('%d', arrival.created_at or 0) ~= ARGV[2] then return 0 end
if (arrival.attempt or '') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], '@+' .. ARGV[1], ARGV[4])
return 1
