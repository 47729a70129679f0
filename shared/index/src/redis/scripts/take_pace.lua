-- Takes a batch's devices off an app's pace, as PaidUntil::take in pace.rs says. KEYS[1]: until when
-- the app's devices are paid for. ARGV, all in microseconds: the time, what the batch costs, how far
-- ahead its taker may be, for how long what was not used is kept, and the furthest that anything can
-- be paid for; then for how long the key is kept, in milliseconds. Answers 1 or 0 for granted or not,
-- and until when the devices are paid for now.

local now, cost, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local saved_up, furthest = tonumber(ARGV[4]), tonumber(ARGV[5])

local paid = tonumber(redis.call('GET', KEYS[1]) or 0)
if paid > now + furthest then paid = now end
paid = math.max(paid, now - saved_up)
if paid > now + ahead then return { 0, paid } end
paid = paid + cost
redis.call('SET', KEYS[1], string.format('%d', paid), 'PX', ARGV[6])
return { 1, paid }
