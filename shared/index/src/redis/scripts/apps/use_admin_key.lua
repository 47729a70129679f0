-- Notes when a key of the admin API was last used, unless it was removed meanwhile. KEYS[1]: the keys. ARGV: the
-- key's name, its digest, and the time.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return end
local field = '+' .. ARGV[1]
if tonumber(ARGV[3]) > tonumber(redis.call('HGET', KEYS[1], field) or 0) then
    redis.call('HSET', KEYS[1], field, ARGV[3])
end
