-- Removes a shard in steps. ARGV: how many chunks, and how many buckets, one step may remove, and
-- for how many seconds the shard stays closed after the last step, then the names of the columns that the app has
-- beside the built-in attributes. Answers 1 when nothing is left,
-- else 0. From the first step on the shard is empty for readers and closed for registrations, so
-- that no registration adds what a later step would delete, or what no step would delete.

local step = tonumber(ARGV[1])
local got = redis.call('HMGET', KEYS[1], 'height', 'buckets')
local height, buckets = tonumber(got[1] or 0), tonumber(got[2] or 0)

for _ = 1, step do
  if height == 0 then break end
  local chunk = floor((height - 1) / CHUNK)
  redis.call('UNLINK', chunk_key(chunk))
  height = chunk * CHUNK
  if height % SEGMENT == 0 then
    redis.call('UNLINK', transport_key(height / SEGMENT), topics_key(height / SEGMENT))
    for attribute = 0, ATTRIBUTES - 1 do
      redis.call('UNLINK', low_key(attribute, height / SEGMENT), high_key(attribute, height / SEGMENT))
    end
    for i = 3, #ARGV do
      redis.call('UNLINK', low_key(ARGV[i], height / SEGMENT), high_key(ARGV[i], height / SEGMENT))
    end
  end
end
for _ = 1, step do
  if buckets == 0 then break end
  buckets = buckets - 1
  redis.call('UNLINK', bucket_key(buckets))
end
if height == 0 and buckets == 0 then
  redis.call('UNLINK', newest_key(), free_key(), KEYS[1])
  redis.call('HSET', KEYS[1], 'gone', 1)
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return 1
end
redis.call('HSET', KEYS[1], 'gone', 1, 'height', height, 'buckets', buckets)
return 0
