-- Writes the record of a running program. KEYS[1]: the records. ARGV: the program's id, the record, for
-- how many milliseconds it counts, and the most records. Answers 1, or 0 if there are as many others.
--
-- A record is kept as the time at which it ends, a blank, and the JSON. Records that have ended are
-- removed when a program reports for the first time, so that a report costs the same however many
-- programs there are.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended, others = {}, 0
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if tonumber(string.match(all[i + 1], '^%d+') or 0) <= now then
      ended[#ended + 1] = all[i]
    else
      others = others + 1
    end
  end
  if others >= tonumber(ARGV[4]) then return 0 end
end
local life = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d %s', now + life, ARGV[2]))
for _, id in ipairs(ended) do redis.call('HDEL', KEYS[1], id) end
if redis.call('PTTL', KEYS[1]) < life then redis.call('PEXPIRE', KEYS[1], string.format('%d', life)) end
return 1
