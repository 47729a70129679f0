-- Sets how many devices are left of a partition of a broadcast that is in the list. KEYS[1]: the list.
-- ARGV: the message, the partition, and its four bytes. The form of a broadcast is that of
-- open_broadcast.rs: a header of 13 bytes, of which the last four are the number of partitions, and
-- then four bytes for each partition. If nothing is left of any, the broadcast is taken off.

local HEADER, VERSION = 13, 1
local broadcast = redis.call('HGET', KEYS[1], ARGV[1])
if not broadcast or #broadcast < HEADER or string.byte(broadcast) ~= VERSION then return end
local a, b, c, d = string.byte(broadcast, HEADER - 3, HEADER)
local last = HEADER + 4 * (a + b * 256 + c * 65536 + d * 16777216)
local before = HEADER + 4 * tonumber(ARGV[2])
if before + 4 > last then return end
broadcast = string.sub(broadcast, 1, before) .. ARGV[3] .. string.sub(broadcast, before + 5)
if string.find(string.sub(broadcast, HEADER + 1, last), '[^%z]') then
  redis.call('HSET', KEYS[1], ARGV[1], broadcast)
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
