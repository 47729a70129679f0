-- Registers or updates devices of one shard.
-- ARGV: the time; all tags; the records of all devices, complete, as if they were new; then of each
-- attribute the low bytes of their codes, and of each the high bytes, empty if all of them are 0.
-- Devices with the same tag stand next to each other. Answers one letter a device: c(reated),
-- u(pdated), f(ull).
--
-- A device that is as it was costs no write. New slots are taken in order, so a batch of new
-- devices is one SETRANGE a column, one SET a chunk and one SET a bucket. What Lua costs here is
-- above all the strings that it makes, because it hashes them: hence few and long arguments, of
-- which pieces are cut as long as they can be.

local now, tags, records = ARGV[1], ARGV[2], ARGV[3]
local LOW, HIGH = 4, 4 + ATTRIBUTES
local count = #tags / TAG
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

-- What a bucket gains stands apart until the bucket is needed as a whole.
local gains = {}

local function load_bucket(bucket)
  if not buckets[bucket] then buckets[bucket] = redis.call('GET', bucket_key(bucket)) or '' end
  if gains[bucket] then
    buckets[bucket] = buckets[bucket] .. table.concat(gains[bucket])
    gains[bucket] = nil
  end
  return buckets[bucket]
end

local function add_entry(bucket, tag, slot)
  local entry, gain = pack(ENTRY_FORMAT, tag, slot), gains[bucket]
  if gain then
    gain[#gain + 1] = entry
  else
    gains[bucket] = { entry }
    dirty_buckets[bucket] = true
  end
end

-- Chunks that were read or changed. Of what is appended to one, the last run of records stands in
-- `tails` as where it lies in the argument, and what came before it in front of that.
-- Segments with a new device are noted in `newest`.
local chunks, tails, dirty_chunks, newest = {}, {}, {}, {}

local function load_chunk(chunk)
  if not chunks[chunk] then chunks[chunk] = redis.call('GET', chunk_key(chunk)) or '' end
  local tail = tails[chunk]
  if tail then
    tail[#tail + 1] = sub(records, tail.from, tail.to)
    local added = #tail == 1 and tail[1] or table.concat(tail)
    chunks[chunk] = #chunks[chunk] == 0 and added or chunks[chunk] .. added
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

local function append_record(slot, from, to)
  local chunk = floor(slot / CHUNK)
  local tail = tails[chunk]
  if not tail then
    tails[chunk] = { from = from, to = to }
    if slot % CHUNK == 0 then chunks[chunk] = '' end -- a new chunk: nothing to read
    dirty_chunks[chunk] = true
    newest[floor(slot / SEGMENT)] = true
  elseif tail.to + 1 == from then
    tail.to = to
  else
    tail[#tail + 1] = sub(records, tail.from, tail.to)
    tail.from, tail.to = from, to
  end
end

-- The slot of the client of a record, and where its present record lies in which chunk, if it
-- is registered. Few are, and of those that are not hardly one shares its tag with another.
-- `gained`: whether this call may have added an entry with this tag.
local function find_client(bucket, tag, record_body, gained)
  if not find(buckets[bucket], tag, 1, true) and not gained then return nil end
  local entries = load_bucket(bucket)
  local at, slot = next_entry(entries, tag, 1)
  if not at then return nil end
  local id = client_id(records, record_body)
  while at do
    local text = load_chunk(floor(slot / CHUNK))
    local first, body, last = locate(text, slot)
    if client_id(text, body) == id then return slot, text, body, last end
    at, slot = next_entry(entries, tag, at + 1)
  end
end

local free = redis.call('LLEN', free_key())
local slots, answers = {}, {}
local from = 1

for i = 1, count do
  local record_body, to = bounds(records, from)
  local tag, bucket = tag_of[i], bucket_at[i]
  local slot, text, body, last = find_client(bucket, tag, record_body, tag == tag_of[i - 1])
  if slot then
    -- The time of registration stays; it has the same length in both.
    if sub(text, body + TIME, last) ~= sub(records, record_body + TIME, to) then
      replace_record(slot, sub(records, from, record_body - 1) .. sub(text, body, body + TIME - 1)
        .. sub(records, record_body + TIME, to))
      slots[i] = slot
    end
    answers[i] = 'u'
  elseif free == 0 and shard.height >= MAX_SLOTS then
    answers[i] = 'f'
  else
    if free > 0 then
      slot = tonumber(redis.call('RPOP', free_key()))
      free = free - 1
      replace_record(slot, sub(records, from, to))
      newest[floor(slot / SEGMENT)] = true
    else
      slot = shard.height
      shard.height = slot + 1
      append_record(slot, from, to)
    end
    add_entry(bucket, tag, slot)
    shard.live = shard.live + 1
    slots[i] = slot
    answers[i] = 'c'
  end
  from = to + 1
end

-- A column grows to the next size class of the allocator of which there are two from one power of
-- two to the next, less the longest header of a string.
local function capacity(needed)
  local class = 64
  while class - 10 < needed do class = class * 2 end
  local smaller = class * 3 / 4 - 10
  return smaller >= needed and smaller or class - 10
end

-- Writes codes into a plane of this length, and answers how long it is then.
local function write_codes(key, length, at, codes)
  local needed = at + #codes
  if needed > length then
    -- Only a string that SETRANGE begins is as long as it is told; one that grows gets twice
    -- the room.
    local old = redis.call('GET', key)
    length = capacity(needed)
    redis.call('DEL', key)
    redis.call('SETRANGE', key, length - 1, '\0')
    if old then redis.call('SETRANGE', key, 0, old) end
  end
  redis.call('SETRANGE', key, at, codes)
  return length
end

-- Of the low planes by segment, which are all written and grow together, and of high planes by key.
local low_lengths, high_lengths = {}, {}

local function length_of_high(key)
  local length = high_lengths[key] or redis.call('STRLEN', key)
  high_lengths[key] = length
  return length
end

-- The codes of devices that have slots in a row. `created`: none of them had its slot before, and
-- a slot that nobody has holds no high bytes.
local function write_run(slot, first, last, created)
  local segment, at = floor(slot / SEGMENT), slot % SEGMENT
  local length = low_lengths[segment] or redis.call('STRLEN', low_key(0, segment))
  for attribute = 0, ATTRIBUTES - 1 do
    local low, high = sub(ARGV[LOW + attribute], first, last), sub(ARGV[HIGH + attribute], first, last)
    low_lengths[segment] = write_codes(low_key(attribute, segment), length, at, low)
    if find(high, '[^%z]') then
      local key = high_key(attribute, segment)
      high_lengths[key] = write_codes(key, length_of_high(key), at, high)
    elseif not created then
      local key = high_key(attribute, segment)
      local over = length_of_high(key) - at
      if over > 0 then redis.call('SETRANGE', key, at, rep('\0', math.min(over, last - first + 1))) end
    end
  end
end

local i = 1
while i <= count do
  local slot, last = slots[i], i
  if slot then
    local following, created = slot + 1, answers[i] == 'c'
    while slots[last + 1] == following and following % SEGMENT ~= 0 do
      last, following = last + 1, following + 1
      created = created and answers[last] == 'c'
    end
    write_run(slot, i, last, created)
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
-- that are new. The bit of the hash that is new in the bucket's number says what moves.
while shard.live > LOAD * shard.buckets do
  local target = shard.buckets
  local half = span_of(target + 1) / 2
  local source = target - half
  local place, bit = HASH - 1, half
  while bit >= 256 do place, bit = place - 1, bit / 256 end
  local text, parts = load_bucket(source), { [false] = {}, [true] = {} }
  local from, moves = 1, false
  for at = 1, #text, ENTRY do
    if (byte(text, at + place) % (2 * bit) >= bit) ~= moves then
      local part = parts[moves]
      part[#part + 1] = sub(text, from, at - 1)
      from, moves = at, not moves
    end
  end
  local part = parts[moves]
  part[#part + 1] = sub(text, from)
  buckets[source], buckets[target] = table.concat(parts[false]), table.concat(parts[true])
  dirty_buckets[source], dirty_buckets[target] = true, true
  shard.buckets = target + 1
end

local writes = {}
for bucket in pairs(dirty_buckets) do
  writes[#writes + 1] = bucket_keys[bucket] or bucket_key(bucket)
  writes[#writes + 1] = load_bucket(bucket)
end
for chunk in pairs(dirty_chunks) do
  writes[#writes + 1] = chunk_key(chunk)
  writes[#writes + 1] = load_chunk(chunk)
end
if #writes > 0 then
  redis.call('MSET', unpack(writes))
  redis.call('HSET', KEYS[1], 'height', shard.height, 'buckets', shard.buckets, 'live', shard.live,
    'layout', LAYOUT)
end
return table.concat(answers)
