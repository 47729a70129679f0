-- Registers or updates devices of one shard.
-- ARGV: the time; all tags; six columns with the codes of all devices; then the record of each,
-- complete, as if it were new. Answers one letter a device: c(reated), u(pdated), f(ull).
--
-- A device that is as it was costs no write. New slots are taken in order, so a batch of new
-- devices is one SETRANGE a column, one SET a chunk and one SET a bucket.

local FIXED = 2 + ATTRIBUTES
local count = #ARGV - FIXED
local now, tags = ARGV[1], ARGV[2]
local shard = read_shard()
if shard.gone then return redis.error_reply('GONE the app is being removed') end
local span = span_of(shard.buckets)

-- Buckets by number, their keys, and tag and bucket of each device.
local buckets, bucket_keys, dirty_buckets = {}, {}, {}
local tag_of, bucket_at = {}, {}
do
  local order, keys = {}, {}
  for i = 1, count do
    local tag = sub(tags, (i - 1) * TAG + 1, i * TAG)
    local bucket = bucket_of(tag, shard.buckets, span)
    tag_of[i], bucket_at[i] = tag, bucket
    if not buckets[bucket] then
      buckets[bucket] = ''
      local key = bucket_key(bucket)
      bucket_keys[bucket] = key
      order[#order + 1] = bucket
      keys[#keys + 1] = key
    end
  end
  for i, text in ipairs(redis.call('MGET', unpack(keys))) do buckets[order[i]] = text or '' end
end

local function load_bucket(bucket)
  if not buckets[bucket] then buckets[bucket] = redis.call('GET', bucket_key(bucket)) or '' end
  return buckets[bucket]
end

-- Chunks that were read or changed; what is appended to one waits in `tails` to be joined once.
local chunks, tails, dirty_chunks = {}, {}, {}

local function load_chunk(chunk)
  if not chunks[chunk] then chunks[chunk] = redis.call('GET', chunk_key(chunk)) or '' end
  if tails[chunk] then
    chunks[chunk] = chunks[chunk] .. table.concat(tails[chunk])
    tails[chunk] = nil
  end
  return chunks[chunk]
end

local function replace_record(slot, record)
  local chunk = floor(slot / CHUNK)
  local text = load_chunk(chunk)
  local first, _, last = locate(text, slot)
  chunks[chunk] = sub(text, 1, first - 1) .. record .. sub(text, last + 1)
  dirty_chunks[chunk] = true
end

local function append_record(slot, record)
  local chunk = floor(slot / CHUNK)
  local tail = tails[chunk]
  if not tail then
    tail = {}
    tails[chunk] = tail
    dirty_chunks[chunk] = true
  end
  tail[#tail + 1] = record
end

-- The slot of the client of a record, and where its present record lies in which chunk, if it
-- is registered.
local function find_client(bucket, tag, record)
  local at, slot = next_entry(bucket, tag, 1)
  if not at then return nil end
  local id = client_id(record, (bounds(record, 1)))
  while at do
    local text = load_chunk(floor(slot / CHUNK))
    local first, body, last = locate(text, slot)
    if client_id(text, body) == id then return slot, text, body, last end
    at, slot = next_entry(bucket, tag, at + 1)
  end
end

local free = redis.call('LLEN', free_key())
local slots, answers, newest = {}, {}, {}

for i = 1, count do
  local record = ARGV[FIXED + i]
  local tag, bucket = tag_of[i], bucket_at[i]
  local slot, text, body, last = find_client(buckets[bucket], tag, record)
  if slot then
    local record_body, record_last = bounds(record, 1)
    -- The time of registration stays; it has the same length in both.
    if sub(text, body + TIME, last) ~= sub(record, record_body + TIME, record_last) then
      replace_record(slot, sub(record, 1, record_body - 1) .. sub(text, body, body + TIME - 1)
        .. sub(record, record_body + TIME))
      slots[i] = slot
    end
    answers[i] = 'u'
  elseif free == 0 and shard.height >= MAX_SLOTS then
    answers[i] = 'f'
  else
    if free > 0 then
      slot = tonumber(redis.call('RPOP', free_key()))
      free = free - 1
      replace_record(slot, record)
    else
      slot = shard.height
      shard.height = slot + 1
      append_record(slot, record)
    end
    buckets[bucket] = buckets[bucket] .. tag .. be32(slot)
    dirty_buckets[bucket] = true
    shard.live = shard.live + 1
    slots[i] = slot
    newest[floor(slot / SEGMENT)] = true
    answers[i] = 'c'
  end
end

-- A column grows to the next size class of the allocator, of which there are four from one
-- power of two to the next, less the longest header of a string: SETRANGE alone would double it.
local function capacity(needed)
  local class = 64
  while class - 10 < needed do class = class * 2 end
  for eighths = 5, 7 do
    local smaller = class * eighths / 8 - 10
    if smaller >= needed then return smaller end
  end
  return class - 10
end

local lengths = {}

local function write_codes(slot, from, to)
  local segment = floor(slot / SEGMENT)
  local at = (slot % SEGMENT) * 2
  local needed = at + (to - from + 1) * 2
  local len = lengths[segment] or redis.call('STRLEN', column_key(0, segment))
  local grown = len
  if needed > len then grown = capacity(needed) end
  lengths[segment] = grown
  for attribute = 0, ATTRIBUTES - 1 do
    local key = column_key(attribute, segment)
    local codes = sub(ARGV[3 + attribute], from * 2 - 1, to * 2)
    if grown > len then
      local text = sub(redis.call('GET', key) or '', 1, at)
      text = text .. string.rep('\0', at - #text) .. codes
      redis.call('SET', key, text .. string.rep('\0', grown - #text))
    else
      redis.call('SETRANGE', key, at, codes)
    end
  end
end

local i = 1
while i <= count do
  local slot, last = slots[i], i
  if slot then
    while last < count and slots[last + 1] == slot + last + 1 - i
      and slots[last + 1] % SEGMENT ~= 0 do last = last + 1 end
    write_codes(slot, i, last)
  end
  i = last + 1
end

for segment in pairs(newest) do
  local at = segment * TIME
  local known = redis.call('GETRANGE', newest_key(), at, at + TIME - 1)
  if #known < TIME or be(known, 1, TIME) < be(now, 1, TIME) then
    redis.call('SETRANGE', newest_key(), at, now)
  end
end

-- Splits buckets until their mean load is back in bounds: at most one for every LOAD devices
-- that are new, and each moves the entries of one bucket.
while shard.live > LOAD * shard.buckets do
  local target = shard.buckets
  span = span_of(target + 1)
  local source = target - span / 2
  local text, stay, move = load_bucket(source), {}, {}
  for at = 1, #text, ENTRY do
    local list = hash_of(text, at) % span == target and move or stay
    list[#list + 1] = sub(text, at, at + ENTRY - 1)
  end
  buckets[source], buckets[target] = table.concat(stay), table.concat(move)
  dirty_buckets[source], dirty_buckets[target] = true, true
  shard.buckets = target + 1
end

local writes = {}
for bucket in pairs(dirty_buckets) do
  writes[#writes + 1] = bucket_keys[bucket] or bucket_key(bucket)
  writes[#writes + 1] = buckets[bucket]
end
for chunk in pairs(dirty_chunks) do
  writes[#writes + 1] = chunk_key(chunk)
  writes[#writes + 1] = load_chunk(chunk)
end
if #writes > 0 then
  redis.call('MSET', unpack(writes))
  redis.call('HSET', KEYS[1], 'height', shard.height, 'buckets', shard.buckets, 'live', shard.live)
end
return table.concat(answers)
