-- Frees codes of one attribute that are still retired. KEYS: as for intern.lua. ARGV: the number of the
-- batch, for how many seconds no free code is reused, the bytes that a value takes beside its text, then
-- the codes. Answers how many were freed; nothing if it is no longer this batch.
--
-- It begins with a removal, so that it also runs on a server without memory.

if redis.call('EXISTS', KEYS[7]) == 1 then return false end
local state = redis.call('HMGET', KEYS[6], 'batch', 'retired_at')
if state[1] ~= ARGV[1] or not state[2] then return false end
local freed, bytes = 0, 0
for i = 4, #ARGV do
  local code = tonumber(ARGV[i])
  if redis.call('GETBIT', KEYS[4], code) == 1 then
    local value = redis.call('LINDEX', KEYS[2], code - 1)
    if value and value ~= '' then
      redis.call('HDEL', KEYS[1], value)
      redis.call('LSET', KEYS[2], code - 1, '')
      redis.call('RPUSH', KEYS[3], code)
      freed, bytes = freed + 1, bytes + #value + tonumber(ARGV[3])
    end
    redis.call('SETBIT', KEYS[4], code, 0)
  end
end
redis.call('DEL', KEYS[5])
-- Without %d, 0 becomes -0, which is no number to Redis.
redis.call('HINCRBY', KEYS[6], 'bytes', string.format('%d', -bytes))
redis.call('HSET', KEYS[6], 'reuse_at', tonumber(redis.call('TIME')[1]) + tonumber(ARGV[2]))
redis.call('HINCRBY', KEYS[6], 'epoch', 1)
return freed
