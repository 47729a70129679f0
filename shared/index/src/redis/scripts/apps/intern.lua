-- Gives codes to values that have none. KEYS: the set and the list of a dictionary, and the key
-- that exists if the app was removed. ARGV: the most values that the dictionary may have, then the
-- values. A value's code is its position in the list, from 1. Answers the number of values in the
-- list; nothing if the app was removed.

if redis.call('EXISTS', KEYS[3]) == 1 then return false end
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[2])
for i = 2, #ARGV do
  if room > 0 and redis.call('SADD', KEYS[1], ARGV[i]) == 1 then
    redis.call('RPUSH', KEYS[2], ARGV[i])
    room = room - 1
  end
end
return redis.call('LLEN', KEYS[2])
