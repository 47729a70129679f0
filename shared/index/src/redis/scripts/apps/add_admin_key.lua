-- Stores a new key of the admin API. KEYS[1]: the keys. ARGV: the key's name, its digest, its JSON, and the most
-- keys that there may be. Answers 'added', 'taken' if there is one of this name, or 'full'.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'taken' end
local names = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local first = string.sub(field, 1, 1)
    if first ~= '@' and first ~= '+' then names = names + 1 end
end
if names >= tonumber(ARGV[4]) then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], '@' .. ARGV[2], ARGV[3])
return 'added'
