-- Lists the records of running programs that have not ended. KEYS[1]: the records. The form of a record
-- is that of report.lua, which keeps them few.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local running, all = {}, redis.call('HGETALL', KEYS[1])
for i = 2, #all, 2 do
  local ends, json = string.match(all[i], '^(%d+) (.*)$')
  if ends and tonumber(ends) > now then running[#running + 1] = json end
end
return running
