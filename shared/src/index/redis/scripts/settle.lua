-- Saves a batch's counts and checkpoint if the checkpoint is where the batch began, and opens the
-- retry that the batch leads to.
-- KEYS[1]: the entry. ARGV: the field of the checkpoint, its value where there is no field, its
-- old and its new value, whether the field 'goes' with this step, the field of the retry or
-- nothing, then counters and what they grow by. Checkpoints are compared as text: they do not
-- fit a double.

if redis.call('EXISTS', KEYS[1]) == 0 then return 'unknown' end
if (redis.call('HGET', KEYS[1], ARGV[1]) or ARGV[2]) ~= ARGV[3] then return 'overtaken' end
if ARGV[5] == 'goes' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
end
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], ARGV[6], '0') end
for i = 7, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
if redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1 then return 'recalled' end
return 'saved'
