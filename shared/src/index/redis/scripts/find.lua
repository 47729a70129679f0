-- Looks clients up. ARGV[1]: their tags. Answers, for every slot that a tag leads to, three
-- values: the number of the tag (from 0), the slot's place in its chunk, and the chunk. Whether
-- the record there is the client's is for the caller to see.

local tags = ARGV[1]
local shard, unreadable = read_shard()
if unreadable then return unreadable end
local span = span_of(shard.buckets)
local answer = {}
if shard.height == 0 then return answer end

local keys = {}
for at = 1, #tags, TAG do
  keys[#keys + 1] = bucket_key(bucket_of(tags, at, shard.buckets, span))
end
for i, bucket in ipairs(redis.call('MGET', unpack(keys))) do
  local tag = sub(tags, (i - 1) * TAG + 1, i * TAG)
  local at, slot = next_entry(bucket or '', tag, 1)
  while at do
    answer[#answer + 1] = i - 1
    answer[#answer + 1] = slot % CHUNK
    answer[#answer + 1] = redis.call('GET', chunk_key(floor(slot / CHUNK)))
    at, slot = next_entry(bucket, tag, at + 1)
  end
end
return answer
