-- Begins the arrival of an app, or takes it over from an earlier attempt. KEYS[1]: the apps. ARGV: the
-- app's id, when it was created, its generation, and the arrival as JSON. Answers 1; or 0 if there is
-- another app of the name, or the generation cannot be given to it.

local removed = tonumber(redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0')
local generation = tonumber(ARGV[3])
if removed > generation then return 0 end

local function decode(text)
  local readable, value = pcall(cjson.decode, text)
  return readable and type(value) == 'table' and value or {}
end

local before = redis.call('HGET', KEYS[1], '@+' .. ARGV[1])
if before then
  local arrival = decode(before)
  if string.format('%d', arrival.created_at or 0) ~= ARGV[2] then return 0 end
  if (arrival.generation or 0) ~= generation then return 0 end
else
  local record = redis.call('HGET', KEYS[1], ARGV[1])
  if record then
    if type(decode(record).moved_to) ~= 'table' or removed ~= generation then return 0 end
  end
end
-- First, because it is refused without memory.
redis.call('HSET', KEYS[1], '@+' .. ARGV[1], ARGV[4], '@' .. ARGV[1], ARGV[3])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
