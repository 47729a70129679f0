-- Acquires a batch's devices from an app's pace, as TheoreticalArrival::acquire in pace.rs does.
-- KEYS[1]: the app's theoretical arrival. ARGV, all in microseconds: the time, the cost of the
-- batch, how far ahead its traffic class may be, for how long unused pace is kept, and the farthest
-- that a theoretical arrival can be ahead; then for how long the key is kept, in milliseconds.
-- Answers 1 if granted, 0 if not, and the new theoretical arrival.

local now, cost, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local burst, max_ahead = tonumber(ARGV[4]), tonumber(ARGV[5])

local arrival = tonumber(redis.call('GET', KEYS[1]) or 0)
if arrival > now + max_ahead then arrival = now end
arrival = math.max(arrival, now - burst)
if arrival > now + ahead then return { 0, arrival } end
arrival = arrival + cost
redis.call('SET', KEYS[1], string.format('%d', arrival), 'PX', ARGV[6])
return { 1, arrival }
