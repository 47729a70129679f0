-- Removes a device. ARGV: its tag and client id, and its record with the length before it, if the device is to
-- be removed only while it has that record. Answers 0 if it was not removed, else 1, or its user if it had one.

local tag, id, expected = ARGV[1], ARGV[2], ARGV[3]
local shard, unreadable = read_shard()
if unreadable then return unreadable end
if shard.height == 0 then return 0 end
local bucket = bucket_of(tag, 1, shard.buckets, span_of(shard.buckets))
local entries = redis.call('GET', bucket_key(bucket))
if not entries then return elsewhere() end

local at, slot = next_entry(entries, tag, 1)
while at do
  local chunk = floor(slot / CHUNK)
  local text = redis.call('GET', chunk_key(chunk))
  if not text then return elsewhere() end
  local first, body, last = locate(text, slot)
  if client_id(text, body, last) == id then
    if expected and sub(text, first, last) ~= expected then return 0 end
    local counts = {}
    count_transports(counts, text, body + EPOCH, -1)
    local user = note_profile(text, body, slot, false)
    redis.call('SET', chunk_key(chunk), sub(text, 1, first - 1) .. '\0' .. sub(text, last + 1))
    redis.call('SET', bucket_key(bucket), sub(entries, 1, at - 1) .. sub(entries, at + ENTRY))
    local segment, position = floor(slot / SEGMENT), slot % SEGMENT
    redis.call('SETRANGE', transport_key(segment), position, '\0')
    for attribute = 0, ATTRIBUTES - 1 do
      redis.call('SETRANGE', low_key(attribute, segment), position, '\0')
      local high = high_key(attribute, segment)
      if redis.call('STRLEN', high) > position then redis.call('SETRANGE', high, position, '\0') end
    end
    write_profiles()
    redis.call('RPUSH', free_key(), slot)
    redis.call('HSET', KEYS[1], 'live', shard.live - 1)
    save_counts(counts, -1)
    return user and user ~= '' and user or 1
  end
  at, slot = next_entry(entries, tag, at + 1)
end
return 0
