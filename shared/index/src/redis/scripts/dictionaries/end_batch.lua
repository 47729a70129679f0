-- Ends a batch: what is still retired has devices and is in use again. KEYS: the state, the key that
-- exists if the app was removed, then the retired codes of each attribute. ARGV: the number of the batch.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local state = redis.call('HMGET', KEYS[1], 'batch', 'retired_at')
if state[1] ~= ARGV[1] or not state[2] then return 0 end
for key = 3, #KEYS do redis.call('DEL', KEYS[key]) end
redis.call('HDEL', KEYS[1], 'retired_at')
return 1
