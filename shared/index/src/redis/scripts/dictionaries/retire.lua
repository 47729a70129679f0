-- Marks codes of one attribute as retired, for a batch that has not begun. KEYS: the state, the key that
-- exists if the app was removed, and the retired codes. ARGV: the number of the last batch, then the
-- codes. Answers 1; 0 if another program has begun a batch since.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local state = redis.call('HMGET', KEYS[1], 'batch', 'retired_at')
if (state[1] or '0') ~= ARGV[1] or state[2] then return 0 end
for i = 2, #ARGV do redis.call('SETBIT', KEYS[3], ARGV[i], 1) end
return 1
