-- Ends a first look at an app's devices: what was marked as retired is a batch from now on, if there is
-- anything. From here on no dictionary that is read has a retired code for writing. KEYS: the state, and
-- the key that exists if the app was removed. ARGV: the number of the last batch, 1 if codes were marked,
-- and how many values the app had added when the look began. Answers 1; 0 if another program has begun a
-- batch since.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local state = redis.call('HMGET', KEYS[1], 'batch', 'retired_at', 'grown')
if (state[1] or '0') ~= ARGV[1] or state[2] then return 0 end
local now = redis.call('TIME')[1]
local grown = math.max(0, tonumber(state[3] or 0) - tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'swept_at', now, 'refused', 0, 'grown', grown)
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'retired_at', now)
  redis.call('HINCRBY', KEYS[1], 'batch', 1)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
end
return 1
