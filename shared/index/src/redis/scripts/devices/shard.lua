-- Functions that the scripts of a shard share. KEYS[1] is the shard. layout.rs, record.rs and
-- keys.rs describe the layout; the constants and the functions for key names are generated from
-- there.

local byte, char, sub, find, rep, floor = string.byte, string.char, string.sub, string.find, string.rep, math.floor
local pack, unpack_number = struct.pack, struct.unpack
local ENTRY, ENTRY_FORMAT = TAG + 4, 'c' .. TAG .. 'I4'

local function be(text, at, len)
  local n = 0
  for i = at, at + len - 1 do n = n * 256 + byte(text, i) end
  return n
end

-- Ends the script with the error code for data that this program cannot have written.
local function corrupt(what) error({ err = CORRUPT .. ' ' .. what }) end

-- The answer, before any write, if a key of the shard is missing. Then the hash slot is being
-- moved, and a node serves the keys that it does not have as if they were empty.
local ELSEWHERE = 'TRYAGAIN some keys of the shard are at another node'
local function elsewhere() return redis.error_reply(ELSEWHERE) end

-- The shard; or nothing, and the error that the script must answer.
local function read_shard()
  local got = redis.call('HMGET', base, 'height', 'buckets', 'live', 'gone', 'layout')
  if got[4] then return { height = 0, buckets = 1, live = 0, gone = true } end
  if got[1] and got[5] ~= LAYOUT then
    -- Answered and not raised, because Redis 6 keeps the code only of an error that is answered.
    return nil, redis.error_reply(OTHER_VERSION .. ' ' .. OTHER_LAYOUT .. (got[5] or '0') .. ', ' .. LAYOUT .. ')')
  end
  return { height = tonumber(got[1] or 0), buckets = tonumber(got[2] or 1), live = tonumber(got[3] or 0) }
end

-- Linear hashing: the smallest power of two that is not below the number of buckets.
local function span_of(buckets)
  local span = 1
  while span < buckets do span = span * 2 end
  return span
end

-- The bytes of a tag that select the bucket, as a big-endian number.
local HASH = 4

-- The bucket of the tag that begins at `at`.
local function bucket_of(tags, at, buckets, span)
  local bucket = unpack_number('>I4', tags, at) % span
  if bucket >= buckets then bucket = bucket - span / 2 end
  return bucket
end

-- The next entry of a bucket with this tag, at or after position `at`: its position and slot.
local function next_entry(bucket, tag, at)
  at = find(bucket, tag, at, true)
  while at do
    if (at - 1) % ENTRY == 0 then return at, be(bucket, at + TAG, 4) end
    at = find(bucket, tag, at + 1, true)
  end
end

-- The first byte of the body, and the last byte, of the record that begins at `at`.
local function bounds(chunk, at)
  local len = byte(chunk, at)
  if not len then corrupt('a chunk of records ends early') end
  if len < 128 then return at + 1, at + len end
  return at + 2, at + 1 + (len - 128) * 256 + byte(chunk, at + 1)
end

-- The first byte, the first byte of the body, and the last byte of a slot's record.
local function locate(chunk, slot)
  local at = 1
  for _ = 1, slot % CHUNK do
    local _, last = bounds(chunk, at)
    at = last + 1
  end
  local body, last = bounds(chunk, at)
  if last > #chunk then corrupt('a record ends early') end
  return at, body, last
end

local function has_change(flags) return flags % (2 * HAS_CHANGE) >= HAS_CHANGE end
local function has_profile(flags) return flags % (2 * HAS_PROFILE) >= HAS_PROFILE end

-- The carrier in whose partitions the device with these flags is. `at` is the first byte of the flags, which a
-- change of carrier follows: the one before, the time, and the one now.
local function partition(text, at)
  local flags = byte(text, at)
  return has_change(flags) and byte(text, at + CHANGE) or flags % 16
end

-- Adds a number to the counts of devices by carrier: for the one in whose partitions the device with these flags is,
-- and for the one before. `at` is the first byte of the flags.
local function count_transports(counts, text, at, number)
  local kind = partition(text, at) + 1
  counts[kind] = (counts[kind] or 0) + number
  if has_change(byte(text, at)) then
    kind = byte(text, at + 1) + 1
    counts[kind] = (counts[kind] or 0) + number
  end
end

-- Saves the counts that grew, or those that shrank. A script makes them grow before it writes anything else and
-- shrink last, so that one that is cut off never leaves a count too low: a broadcast would leave devices out.
local function save_counts(counts, sign)
  for kind, number in pairs(counts) do
    if number * sign > 0 then redis.call('HINCRBY', KEYS[1], 't' .. digits(kind), digits(number)) end
  end
end

-- The client id of a record; none if the slot is free. The map leads to a free slot if a removal
-- was cut off.
local function client_id(text, body, last)
  if last < body then return nil end
  local at = body + EPOCH + 1
  local flags = byte(text, body + EPOCH) or corrupt('a record without a transport')
  if has_change(flags) then at = at + CHANGE end
  if has_profile(flags) then at = at + 2 + be(text, at, 2) end
  if at > #text then corrupt('a record without a client id') end
  return sub(text, at + 1, at + byte(text, at))
end

-- The capacity to which a plane grows: the next size class of the allocator, of which two are used
-- between one power of two and the next, less the longest header of a string.
local function capacity(needed)
  local class = 64
  while class - 10 < needed do class = class * 2 end
  local smaller = class * 3 / 4 - 10
  return smaller >= needed and smaller or class - 10
end

-- Writes codes into a plane of this length, and answers its new length.
local function write_codes(key, length, at, codes)
  local needed = at + #codes
  if needed > length then
    -- SETRANGE would allocate twice the room for a string that it makes longer, so the plane is
    -- replaced. In one write, because a plane that is deleted first is lost if the next write is
    -- refused.
    local old = redis.call('GET', key) or ''
    length = capacity(needed)
    redis.call('SET', key,
      sub(old, 1, at) .. rep('\0', at - #old) .. codes .. rep('\0', length - needed))
  else
    redis.call('SETRANGE', key, digits(at), codes)
  end
  return length
end
