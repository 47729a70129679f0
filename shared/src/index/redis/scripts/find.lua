-- Looks clients up. KEYS: shards; ARGV: of each of them the tags of the clients. Answers, for every
-- slot that a tag leads to, three values: the number of the tag among all (from 0), the slot's place
-- in its chunk, and the chunk. Whether the record there is the client's is for the caller to see.

local answer, before = {}, 0
for number = 1, #KEYS do
  base = KEYS[number]
  local tags = ARGV[number]
  local shard, unreadable = read_shard()
  if unreadable then return unreadable end
  if shard.height > 0 then
    local span, keys = span_of(shard.buckets), {}
    for at = 1, #tags, TAG do
      keys[#keys + 1] = bucket_key(bucket_of(tags, at, shard.buckets, span))
    end
    for i, bucket in ipairs(redis.call('MGET', unpack(keys))) do
      local tag = sub(tags, (i - 1) * TAG + 1, i * TAG)
      local at, slot = next_entry(bucket or '', tag, 1)
      while at do
        answer[#answer + 1] = before + i - 1
        answer[#answer + 1] = slot % CHUNK
        answer[#answer + 1] = redis.call('GET', chunk_key(floor(slot / CHUNK)))
        at, slot = next_entry(bucket, tag, at + 1)
      end
    end
  end
  before = before + #tags / TAG
end
return answer
