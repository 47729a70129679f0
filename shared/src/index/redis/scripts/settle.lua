-- Saves a batch's counts and checkpoint if the checkpoint is where the batch began.
-- KEYS[1]: the entry. ARGV: the field of the checkpoint, its old and its new value, then
-- counters and what they grow by. Checkpoints are compared as text: they do not fit a double.

if redis.call('EXISTS', KEYS[1]) == 0 then return 'unknown' end
if (redis.call('HGET', KEYS[1], ARGV[1]) or '0') ~= ARGV[2] then return 'overtaken' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
for i = 4, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
if redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1 then return 'recalled' end
return 'saved'
