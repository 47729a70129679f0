-- Adds devices to users with one hash of user ids. KEYS[1]: the users. ARGV: the most devices of a user, 1 if devices that
-- are there get the present time, then pairs of a user and a client id. Answers one letter a pair: o(k), f(ull), or g(one:
-- the app was removed).
--
-- The devices of a user are one after the other: when each was added, its client id's length, and the client id.

local most, renews, answers = tonumber(ARGV[1]), ARGV[2] == '1', {}
if redis.call('HEXISTS', KEYS[1], '') == 1 then return string.rep('g', (#ARGV - 2) / 2) end
local time = redis.call('TIME')
local now = struct.pack('>I6', time[1] * 1000 + math.floor(time[2] / 1000))

for i = 3, #ARGV, 2 do
  local user, client = ARGV[i], ARGV[i + 1]
  local devices = redis.call('HGET', KEYS[1], user) or ''
  local at, count, found = 1, 0, nil
  while at <= #devices do
    local last = at + 6 + devices:byte(at + 6)
    if devices:sub(at + 7, last) == client then found = at end
    at, count = last + 1, count + 1
  end
  local answer = 'o'
  if not found and count >= most then
    answer = 'f'
  elseif not found then
    redis.call('HSET', KEYS[1], user, devices .. now .. string.char(#client) .. client)
  elseif renews then
    redis.call('HSET', KEYS[1], user, devices:sub(1, found - 1) .. now .. devices:sub(found + 6))
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
