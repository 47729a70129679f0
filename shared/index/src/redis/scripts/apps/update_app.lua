-- Replaces the record of an app. KEYS[1]: the apps. ARGV: the app's id, its generation, its JSON, and
-- the revision that the stored record must have. Answers 1; or 0 if there is no such app, only one of
-- another generation, or one with another revision.

local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored then return 0 end
if (redis.call('HGET', KEYS[1], '@' .. ARGV[1]) or '0') ~= ARGV[2] then return 0 end
local readable, record = pcall(cjson.decode, stored)
local revision = readable and type(record) == 'table' and record.revision or 0
if string.format('%d', revision) ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
