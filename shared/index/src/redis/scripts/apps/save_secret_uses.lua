-- Saves when secrets of an app were last used. KEYS[1]: the uses; KEYS[2]: exists if the app was
-- removed. ARGV: a time; then for each secret that the app has its name and the time, 0 if it was
-- not used. What is saved for other names from before the first time goes, so that the hash does not
-- grow.

if redis.call('EXISTS', KEYS[2]) == 1 then return end
local kept = {}
local old = tonumber(ARGV[1])
for i = 2, #ARGV, 2 do
    kept[ARGV[i]] = true
    local before = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or 0)
    if tonumber(ARGV[i + 1]) > before then
        redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    end
end
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if not kept[name] and tonumber(redis.call('HGET', KEYS[1], name)) < old then
        redis.call('HDEL', KEYS[1], name)
    end
end
