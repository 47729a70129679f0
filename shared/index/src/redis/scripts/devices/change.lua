-- Changes devices that are registered, each only if its record is still the one that was read.
-- KEYS: for each device its chunk of records, then the column planes in which a byte changes. ARGV:
-- for each device the position of its slot in the chunk, its record as it was read and as it is to
-- be, the position of its slot in the planes, and the new bytes, in the order of their keys.
-- Answers one letter a device: u(pdated), or l(eft unchanged).
--
-- A plane that ends before the slot would have to grow, which only register.lua does. If something
-- unexpected is stored for a device, only that device is left unchanged, hence `pcall`.

local byte, sub, answers = string.byte, string.sub, {}

-- Where the record of a slot begins; nothing if it is another record than `record`.
local function find_record(chunk, slot, record)
  local at = 1
  for _ = 1, slot do
    local length = byte(chunk, at)
    if not length then return nil end
    if length >= 128 then
      at = at + 2 + (length - 128) * 256 + (byte(chunk, at + 1) or 0)
    else
      at = at + 1 + length
    end
  end
  if sub(chunk, at, at + #record - 1) == record then return at end
end

local function reach_to(first, count, position)
  for key = first, first + count - 1 do
    local length = redis.pcall('STRLEN', KEYS[key])
    if type(length) ~= 'number' or length <= position then return false end
  end
  return true
end

local key = 1
for i = 1, #ARGV, 5 do
  local before, after, position, codes = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local chunk = redis.pcall('GET', KEYS[key])
  local at = type(chunk) == 'string' and find_record(chunk, tonumber(ARGV[i]), before)
  if at and reach_to(key + 1, #codes, tonumber(position)) then
    for number = 1, #codes do
      redis.call('SETRANGE', KEYS[key + number], position, sub(codes, number, number))
    end
    if #after == #before then
      redis.call('SETRANGE', KEYS[key], string.format('%d', at - 1), after)
    else
      redis.call('SET', KEYS[key], sub(chunk, 1, at - 1) .. after .. sub(chunk, at + #before))
    end
    answers[#answers + 1] = 'u'
  else
    answers[#answers + 1] = 'l'
  end
  key = key + 1 + #codes
end
return table.concat(answers)
