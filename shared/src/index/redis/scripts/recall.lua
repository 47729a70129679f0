-- Recalls a message unless every device of it is settled. KEYS[1]: the entry. ARGV: the app, the
-- time, and the checkpoint of a strand that is done. Answers the entry, empty if the app has
-- none with this id.

local function number(field) return tonumber(redis.call('HGET', KEYS[1], field) or 0) end

local function is_closed()
  local strands = redis.call('HGET', KEYS[1], 'strands')
  if not strands then return false end
  for strand = 0, tonumber(strands) - 1 do
    if redis.call('HGET', KEYS[1], 'pos:' .. strand) ~= ARGV[3] then return false end
  end
  local settled = number('sent') + number('expired') + number('recalled')
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'failed:' then settled = settled + number(field) end
  end
  return settled >= number('targeted')
end

if redis.call('HGET', KEYS[1], 'app') ~= ARGV[1] then return {} end
if not is_closed() then redis.call('HSETNX', KEYS[1], 'recalled_at', ARGV[2]) end
return redis.call('HGETALL', KEYS[1])
