-- Takes devices away from users with one hash of user ids, if they were added so long ago that no registration that added
-- them is under way. KEYS[1]: the users. ARGV: that time in milliseconds, then pairs of a user and a client id.

local time = redis.call('TIME')
local latest = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])

for i = 2, #ARGV, 2 do
  local user, client = ARGV[i], ARGV[i + 1]
  local devices = redis.call('HGET', KEYS[1], user) or ''
  local at, kept = 1, {}
  while at <= #devices do
    local last = at + 6 + devices:byte(at + 6)
    local is_late = struct.unpack('>I6', devices, at) > latest
    if is_late or devices:sub(at + 7, last) ~= client then kept[#kept + 1] = devices:sub(at, last) end
    at = last + 1
  end
  local left = table.concat(kept)
  if left == '' and devices ~= '' then
    redis.call('HDEL', KEYS[1], user)
  elseif left ~= devices then
    redis.call('HSET', KEYS[1], user, left)
  end
end
