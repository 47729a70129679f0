-- Counts devices of an app that were reported as gone. KEYS[1]: the counts; KEYS[2]: exists if the app was
-- removed. ARGV: how many, then the times of GoneWindow in gone.rs: the part that they are counted in, the
-- first and the last part that count; then the time at which the counts may go. Answers the sum of the parts
-- that count, and until when removals are stopped, 0 for never.

if redis.call('EXISTS', KEYS[2]) == 1 then return { 0, 0 } end
local fields = redis.call('HGETALL', KEYS[1])
local first, last = tonumber(ARGV[3]), tonumber(ARGV[4])
local sum, here, stopped, old = tonumber(ARGV[1]), tonumber(ARGV[1]), 0, {}
for i = 1, #fields, 2 do
  local count = tonumber(fields[i + 1])
  if fields[i] == 'stopped' then
    stopped = count
  else
    local part = tonumber(fields[i])
    if part < first or part > last then
      old[#old + 1] = fields[i]
    else
      sum = sum + count
      if fields[i] == ARGV[2] then here = here + count end
    end
  end
end
redis.call('HSET', KEYS[1], ARGV[2], string.format('%d', here))
for _, field in ipairs(old) do redis.call('HDEL', KEYS[1], field) end
redis.call('PEXPIREAT', KEYS[1], string.format('%d', math.max(tonumber(ARGV[5]), stopped)))
return { sum, stopped }
