-- Registers or updates devices of one shard. ARGV: the time; all tags; the records of all devices,
-- complete, as if the devices were new; then for each built-in attribute the low bytes of the codes, the bytes
-- of the carrier column, and for each attribute the high bytes, empty if all of them are 0. Devices with
-- the same tag are next to each other. Answers one letter a device: c(reated), u(pdated), f(ull), g(one: the
-- app was removed), a(gain: the device is registered, and it has a profile or is to get one; what it keeps of that is
-- only known to a caller that has read its record, so it is left unchanged). If a device was updated, the answer is two strings: the letters, and for each updated device,
-- in order, the epoch of its registration.
--
-- A device that has not changed costs no write. New slots are taken in order, so a batch of new
-- devices is one SETRANGE a column, one SET a chunk and one SET a bucket. Most of the cost of Lua
-- is in the strings that it creates, because it hashes them: hence few and long arguments, from
-- which pieces are cut as long as possible. A lone new device is appended to the last chunk, which
-- is not read for it.

local now, tags, records = ARGV[1], ARGV[2], ARGV[3]
local LOW, TRANSPORTS, HIGH = 4, 4 + ATTRIBUTES, 5 + ATTRIBUTES
local count = #tags / TAG
local shard, unreadable = read_shard()
if unreadable then return unreadable end
if shard.gone then return rep('g', count) end
local span = span_of(shard.buckets)

-- Buckets by number, their keys, and groups: consecutive devices that share a bucket.
local buckets, bucket_keys, dirty_buckets = {}, {}, {}
local group_bucket, group_last = {}, {}
do
  local order, keys, groups = {}, {}, 0
  for i = 1, count do
    local bucket = bucket_of(tags, (i - 1) * TAG + 1, shard.buckets, span)
    if bucket ~= group_bucket[groups] then
      groups = groups + 1
      group_bucket[groups] = bucket
      if not bucket_keys[bucket] then
        local key = bucket_key(bucket)
        bucket_keys[bucket] = key
        order[#order + 1], keys[#keys + 1] = bucket, key
      end
    end
    group_last[groups] = i
  end
  for i, text in ipairs(redis.call('MGET', unpack(keys))) do
    if not text and shard.height > 0 then return elsewhere() end
    buckets[order[i]] = text or ''
  end
end
-- The last chunk may be appended to without being read, so it is checked here that it is not
-- missing.
if shard.height % CHUNK > 0 and redis.call('STRLEN', chunk_key(floor(shard.height / CHUNK))) == 0 then
  return elsewhere()
end

-- `chunks`: chunks that were read or changed. `tails`: what is appended to a chunk, as a list of
-- strings and, for the last consecutive records, their range in the argument `records`. `newest`:
-- the segments with a new device.
local chunks, tails, dirty_chunks, newest = {}, {}, {}, {}

local function load_chunk(chunk)
  if not chunks[chunk] then
    chunks[chunk] = redis.call('GET', chunk_key(chunk)) or error({ err = ELSEWHERE })
  end
  local tail = tails[chunk]
  if tail then
    tail[#tail + 1] = sub(records, tail.from, tail.to)
    local added = #tail == 1 and tail[1] or table.concat(tail)
    chunks[chunk] = #chunks[chunk] == 0 and added or chunks[chunk] .. added
    tails[chunk] = nil
  end
  return chunks[chunk]
end

-- A record with its length before it.
local function with_length(record)
  local length = #record
  if length < 128 then return char(length) .. record end
  return char(128 + floor(length / 256), length % 256) .. record
end

local function replace_record(slot, record)
  local chunk = floor(slot / CHUNK)
  local text = load_chunk(chunk)
  local first, _, last = locate(text, slot)
  chunks[chunk] = sub(text, 1, first - 1) .. record .. sub(text, last + 1)
  dirty_chunks[chunk] = true
end

-- Answers the chunk and the tail to which the record was appended.
local function append_record(slot, from, to)
  local chunk = floor(slot / CHUNK)
  local tail = tails[chunk]
  if not tail then
    tail = { from = from, to = to }
    tails[chunk] = tail
    if slot % CHUNK == 0 then chunks[chunk] = '' end -- a new chunk: nothing to read
    dirty_chunks[chunk] = true
    newest[floor(slot / SEGMENT)] = true
  elseif tail.to + 1 == from then
    tail.to = to
  else
    tail[#tail + 1] = sub(records, tail.from, tail.to)
    tail.from, tail.to = from, to
  end
  return chunk, tail
end

-- The change of carrier in the record of a registered device after this registration, or ''. `at` and `given`
-- are the first bytes of the flags in its present record and in the one that was given, `time` is when it registers.
-- `push_model::registration::change_after` is the same rule.
local function change_after(text, at, given, time)
  local flags, before, kind = byte(text, at), partition(text, at), byte(records, given) % 16
  if has_change(flags) then
    local age = be(time, 1, TIME) - be(text, at + 2, TIME)
    if age <= CHANGE_KEPT then
      local is_joined = kind ~= flags % 16 and age <= CHANGES_JOINED
      local to = is_joined and kind or before
      return to == byte(text, at + 1) and '' or sub(text, at + 1, at + 1 + TIME) .. char(to)
    end
  end
  return kind == before and '' or char(before) .. time .. char(kind)
end

-- Looks for the client of a record among the entries with its tag: its slot, the chunk's text, and
-- the first and last byte of the body of its present record in it.
local function find_client(entries, tag, record_body, record_last)
  local at, slot = next_entry(entries, tag, 1)
  if not at then return nil end
  local id = client_id(records, record_body, record_last)
  while at do
    local text = load_chunk(floor(slot / CHUNK))
    local first, body, last = locate(text, slot)
    if client_id(text, body, last) == id then return slot, text, body, last end
    at, slot = next_entry(entries, tag, at + 1)
  end
end

-- Packs a list of tags and slots into entries. `formats`: the pack formats by the length of the
-- list.
local formats = {}

local function pack_entries(list, length)
  local format = formats[length]
  if not format then
    format = '>' .. rep(ENTRY_FORMAT, length / 2)
    formats[length] = format
  end
  return pack(format, unpack(list, 1, length))
end

-- The next loop runs for each device, a million times in an import, where most devices are new and
-- next to each other in their buckets: so it makes few calls and keeps in locals what the device
-- before used. It writes nothing yet.
local free, freed, height, created = nil, 0, shard.height, 0
local answers, epochs, transports = {}, {}, ARGV[TRANSPORTS]
-- By how much the number of devices of a transport changes, and the bytes of the transport column that are not those
-- of a device that never changed its transport, by slot.
local counts, transport_bytes = {}, {}
-- Runs of devices whose codes are to be written: consecutive devices in consecutive slots, all new
-- or all known.
local runs, run = {}, { last = 0 }
local from, i, chunk, tail = 1, 1, nil, nil

for group, bucket in ipairs(group_bucket) do
  local entries, gained, length, previous = buckets[bucket], {}, 0, nil
  while i <= group_last[group] do
    local tag = sub(tags, (i - 1) * TAG + 1, i * TAG)
    if tag == previous and length > 0 then
      entries, length = entries .. pack_entries(gained, length), 0
    end
    previous = tag
    local body, to = from + 1, byte(records, from)
    if to < 128 then to = from + to else body, to = bounds(records, from) end

    local slot, is_new, changed
    if find(entries, tag, 1, true) then
      local text, present, last
      slot, text, present, last = find_client(entries, tag, body, to)
      if slot and (has_profile(byte(text, present + EPOCH)) or has_profile(byte(records, body + EPOCH))) then
        answers[i] = 'a'
      -- The epoch of the registration is kept; it has the same length in both records.
      elseif slot then
        local epoch = sub(text, present, present + EPOCH - 1)
        epochs[#epochs + 1] = epoch
        local at, given = present + EPOCH, body + EPOCH
        if byte(text, at) % 128 == byte(records, given) % 128 then
          changed = sub(text, at, last) ~= sub(records, given, to)
          if changed then
            replace_record(slot, sub(records, from, body - 1) .. epoch .. sub(records, given, to))
          end
        else
          local change = change_after(text, at, given, now)
          local flags = byte(records, given) + (change == '' and 0 or HAS_CHANGE)
          local record = epoch .. char(flags) .. change .. sub(records, given + 1, to)
          changed = sub(text, present, last) ~= record
          if changed then
            count_transports(counts, text, at, -1)
            count_transports(counts, record, EPOCH + 1, 1)
            local partition_now = partition(record, EPOCH + 1)
            transport_bytes[slot] = partition_now + 1 + (change == '' and 0 or 16 * (byte(change) + 1))
            replace_record(slot, with_length(record))
          end
        end
        answers[i] = 'u'
      end
    end
    if not slot then
      free = free or redis.call('LRANGE', free_key(), '-' .. digits(count), '-1')
      if freed < #free then
        slot, is_new, changed = tonumber(free[#free - freed]), true, true
        freed = freed + 1
        replace_record(slot, sub(records, from, to))
        newest[floor(slot / SEGMENT)] = true
      elseif height < MAX_SLOTS then
        slot, is_new, changed = height, true, true
        height = slot + 1
        -- A tail that load_chunk moved into its chunk meanwhile is no longer in `tails`.
        if slot % CHUNK > 0 and tail and tails[chunk] == tail and tail.to + 1 == from then
          tail.to = to
        else
          chunk, tail = append_record(slot, from, to)
        end
      else
        answers[i] = 'f'
      end
      if is_new then
        gained[length + 1], gained[length + 2] = tag, slot
        length = length + 2
        created = created + 1
        if has_profile(byte(records, body + EPOCH)) then note_profile(records, body, slot, true) end
        local kind = byte(transports, i)
        counts[kind] = (counts[kind] or 0) + 1
      end
    end
    if changed then
      if i == run.last + 1 and slot == run.following and is_new == run.is_new and slot % SEGMENT > 0 then
        run.last, run.following = i, slot + 1
      else
        run = { slot = slot, first = i, last = i, following = slot + 1, is_new = is_new }
        runs[#runs + 1] = run
      end
    end
    from, i = to + 1, i + 1
  end
  if length > 0 then entries = entries .. pack_entries(gained, length) end
  if #entries > #buckets[bucket] then
    buckets[bucket], dirty_buckets[bucket] = entries, true
  end
end
shard.height, shard.live = height, shard.live + created

-- The lengths of the low planes by segment, because those of all attributes are written and grow
-- together, and of the high planes by key.
local low_lengths, high_lengths = {}, {}

local function length_of_high(key)
  local length = high_lengths[key] or redis.call('STRLEN', key)
  high_lengths[key] = length
  return length
end

for _, run in ipairs(runs) do
  local segment = digits(floor(run.slot / SEGMENT))
  if not low_lengths[segment] then
    low_lengths[segment] = redis.call('STRLEN', low_key('0', segment))
    if low_lengths[segment] == 0 and run.slot % SEGMENT > 0 then return elsewhere() end
  end
end

save_counts(counts, 1)

-- The columns are written before the records, so that a registration that is cut off is not taken
-- for done when it is made again. The high bytes of a free slot are 0, so new devices without high
-- bytes need no write of them.
for _, run in ipairs(runs) do
  local segment, at = digits(floor(run.slot / SEGMENT)), run.slot % SEGMENT
  local length = low_lengths[segment]
  write_codes(transport_key(segment), length, at, sub(transports, run.first, run.last))
  for number = 0, ATTRIBUTES - 1 do
    local attribute = digits(number)
    local low = sub(ARGV[LOW + number], run.first, run.last)
    low_lengths[segment] = write_codes(low_key(attribute, segment), length, at, low)
    local high, key = sub(ARGV[HIGH + number], run.first, run.last), high_key(attribute, segment)
    if find(high, '[^%z]') then
      high_lengths[key] = write_codes(key, length_of_high(key), at, high)
    elseif not run.is_new then
      local over = length_of_high(key) - at
      if over > 0 then redis.call('SETRANGE', key, digits(at), rep('\0', math.min(over, #low))) end
    end
  end
end

write_profiles()

for slot, code in pairs(transport_bytes) do
  redis.call('SETRANGE', transport_key(digits(floor(slot / SEGMENT))), slot % SEGMENT, char(code))
end

for segment in pairs(newest) do
  local at, last = digits(segment * TIME), digits(segment * TIME + TIME - 1)
  local known = redis.call('GETRANGE', newest_key(), at, last)
  if #known < TIME or be(known, 1, TIME) < be(now, 1, TIME) then
    redis.call('SETRANGE', newest_key(), at, now)
  end
end

-- Splits buckets until their mean load is within its bound: at most one split for every LOAD new
-- devices. The bit of the hash that is added to the bucket's number decides which entries move.
while created > 0 and shard.live > LOAD * shard.buckets do
  local target = shard.buckets
  local half = span_of(target + 1) / 2
  local source = target - half
  local offset, bit = HASH - 1, half
  while bit >= 256 do offset, bit = offset - 1, bit / 256 end
  local text = buckets[source] or redis.call('GET', bucket_key(source)) or ''
  local parts = { [false] = {}, [true] = {} }
  local from, moves = 1, false
  for at = 1, #text, ENTRY do
    if (byte(text, at + offset) % (2 * bit) >= bit) ~= moves then
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

-- Redis allocates twice the room for a string to which is appended. A chunk is written whole with
-- the record that completes it, which gives the room back. MSET comes first: a node that has only
-- some of the keys refuses it, and the next try would append again what APPEND had already
-- appended.
local writes, appended = {}, nil
for chunk in pairs(dirty_chunks) do
  if not chunks[chunk] and shard.height < (chunk + 1) * CHUNK then
    local tail = tails[chunk]
    tail[#tail + 1] = sub(records, tail.from, tail.to)
    appended = { chunk_key(chunk), table.concat(tail) }
  else
    writes[#writes + 1] = chunk_key(chunk)
    writes[#writes + 1] = load_chunk(chunk)
  end
end
for bucket in pairs(dirty_buckets) do
  writes[#writes + 1] = bucket_keys[bucket] or bucket_key(bucket)
  writes[#writes + 1] = buckets[bucket]
end
if #writes > 0 then redis.call('MSET', unpack(writes)) end
if appended then redis.call('APPEND', unpack(appended)) end
if created > 0 then
  redis.call('HSET', KEYS[1], 'height', digits(shard.height), 'buckets', digits(shard.buckets),
    'live', digits(shard.live), 'layout', LAYOUT)
end
if freed > 0 then redis.call('RPOP', free_key(), freed) end
save_counts(counts, -1)
if created == count then return rep('c', count) end
for i = 1, count do answers[i] = answers[i] or 'c' end
return { table.concat(answers), table.concat(epochs) }
