-- Gives codes to values of one column: an attribute, or the topics. KEYS: the codes, the values, the free codes, the retired
-- codes, the reused codes, the state, and the key that exists if the app was removed. ARGV: the most
-- codes of the column, the most bytes of the app, the bytes that a value takes beside its text, the field of the state
-- that says that the app has the column, empty for those that every app has, then the values. A value's code is its position in the list of values, from 1. Answers a code for each
-- value, 0 where there is no room; nothing if the app was removed.
--
-- A retired code is in use again with this call. A free code is reused only when nothing remembers
-- its former value.

if redis.call('EXISTS', KEYS[7]) == 1 then return false end
local most, most_bytes, overhead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[6], 'bytes', 'reuse_at')
local bytes, made = tonumber(state[1] or 0), redis.call('LLEN', KEYS[2])
local free = 0
if tonumber(redis.call('TIME')[1]) >= tonumber(state[2] or 0) then free = redis.call('LLEN', KEYS[3]) end
local codes, added, added_bytes, refused = {}, 0, 0, 0

for i = 5, #ARGV do
  local value = ARGV[i]
  local code = tonumber(redis.call('HGET', KEYS[1], value) or 0)
  if code > 0 then
    if redis.call('GETBIT', KEYS[4], code) == 1 then redis.call('SETBIT', KEYS[4], code, 0) end
  elseif bytes + added_bytes + #value + overhead > most_bytes or (free == 0 and made >= most) then
    refused = refused + 1
  else
    if free > 0 then
      code = tonumber(redis.call('LINDEX', KEYS[3], -1))
      redis.call('LSET', KEYS[2], code - 1, value)
      redis.call('RPUSH', KEYS[5], code)
      redis.call('RPOP', KEYS[3])
      free = free - 1
    else
      made = made + 1
      code = made
      redis.call('RPUSH', KEYS[2], value)
    end
    -- Last: a call that ends before it loses the code, and never gives it to two values.
    redis.call('HSET', KEYS[1], value, code)
    added, added_bytes = added + 1, added_bytes + #value + overhead
  end
  codes[#codes + 1] = code
end
if added > 0 then
  redis.call('HINCRBY', KEYS[6], 'bytes', added_bytes)
  redis.call('HINCRBY', KEYS[6], 'grown', added)
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[6], ARGV[4], 1) end
end
if refused > 0 then redis.call('HINCRBY', KEYS[6], 'refused', refused) end
return codes
