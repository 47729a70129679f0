-- Functions with which scripts write the profiles of devices where targeting finds them: a code for each custom
-- attribute in its planes, and the slots of each topic. `note_profile` says what a record has, and `write_profiles`
-- writes what was noted. A plane is only as long as devices have values; missing bytes are 0. Nothing is noted, and
-- nothing is written, of a device without a profile.

-- By custom attribute, the codes by slot, or the negative of a code that the slot loses; by segment and topic, whether
-- each slot is a member.
local noted_codes, noted_members = {}, {}

-- Notes the custom attributes and topics of the record whose body begins at `body`: that the slot has them, or that it has
-- them no more.
local function note_profile(text, body, slot, has)
  local flags, at = byte(text, body + EPOCH), body + EPOCH + 1
  if not has_profile(flags) then return end
  if has_change(flags) then at = at + CHANGE end
  local last = at + 1 + be(text, at, 2)
  at = at + 3
  for _ = 1, byte(text, at - 1) do
    local id = be(text, at, 2)
    noted_codes[id] = noted_codes[id] or {}
    local code = be(text, at + 2, 2)
    -- A code that the record before had too is not touched: the attribute may be one that the app declares no more, whose
    -- planes were deleted.
    if not has then code = -code elseif noted_codes[id][slot] == -code then code = nil end
    noted_codes[id][slot] = code
    at = at + 4
  end
  local segment, offset = floor(slot / SEGMENT), slot % SEGMENT
  local topics = byte(text, at)
  if topics > 0 then noted_members[segment] = noted_members[segment] or {} end
  at = at + 1
  for _ = 1, topics do
    local code, members = be(text, at, 2), noted_members[segment]
    members[code] = members[code] or {}
    -- A topic that the record before had too is not touched.
    if has and members[code][offset] == false then members[code][offset] = nil else members[code][offset] = has end
    at = at + 2
  end
  if at - 1 > last then corrupt('a profile ends early') end
  return sub(text, at, last)
end

local function sorted_keys(of)
  local keys = {}
  for key in pairs(of) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

-- Writes codes for consecutive slots into a plane. What is 0 is not written where the plane has no bytes.
local function write_plane(key, at, codes)
  local length = redis.call('STRLEN', key)
  if find(codes, '[^%z]') then
    write_codes(key, length, at, codes)
  elseif length > at then
    redis.call('SETRANGE', key, digits(at), sub(codes, 1, length - at))
  end
end

local function write_noted_codes(id, codes)
  local column, slots, first = 'c' .. digits(id), sorted_keys(codes), 1
  for i, slot in ipairs(slots) do
    local following = slots[i + 1]
    if following ~= slot + 1 or following % SEGMENT == 0 then
      local low, high = {}, {}
      for number = first, i do
        local code = math.max(codes[slots[number]], 0)
        low[#low + 1], high[#high + 1] = char(code % 256), char(floor(code / 256))
      end
      local segment, at = digits(floor(slot / SEGMENT)), slots[first] % SEGMENT
      low, high = table.concat(low), table.concat(high)
      local key = low_key(column, segment)
      if find(high, '[^%z]') then
        -- The low byte may be 0: a reader takes a slot behind the end of the low plane for one without a value.
        write_codes(key, redis.call('STRLEN', key), at, low)
      else
        write_plane(key, at, low)
      end
      write_plane(high_key(column, segment), at, high)
      first = i + 1
    end
  end
end

-- The members of a topic in a segment are their offsets in order, two bytes each, or a bitmap as soon as that is
-- shorter. It becomes a list again when it has half as many members, so that a few that come and go do not change its
-- form each time. The bitmap follows the number of its members, so that its length is odd.
local BITS, COUNT = SEGMENT / 8, struct.size(COUNT_FORMAT)
local MOST_LISTED = BITS / 2

local function bitmap_of(list)
  local bytes = {}
  for i = 1, BITS do bytes[i] = 0 end
  for at = 1, #list, 2 do
    local offset = be(list, at, 2)
    local index = floor(offset / 8) + 1
    bytes[index] = bytes[index] + 2 ^ (7 - offset % 8)
  end
  for i = 1, BITS do bytes[i] = char(bytes[i]) end
  return pack(COUNT_FORMAT, #list / 2) .. table.concat(bytes)
end

local function list_of(bitmap)
  local list = {}
  for index = 0, BITS - 1 do
    local bits = byte(bitmap, COUNT + 1 + index)
    for bit = 0, bits > 0 and 7 or -1 do
      if bits % 2 ^ (8 - bit) >= 2 ^ (7 - bit) then list[#list + 1] = pack('>I2', index * 8 + bit) end
    end
  end
  return table.concat(list)
end

-- The list after some offsets, which are in order, were added or taken away.
local function edit_list(list, offsets, has)
  local pieces, from, low, count = {}, 1, 0, #list / 2
  for _, offset in ipairs(offsets) do
    local high = count
    while low < high do
      local middle = floor((low + high) / 2)
      if be(list, middle * 2 + 1, 2) < offset then low = middle + 1 else high = middle end
    end
    local at = low * 2 + 1
    local is_there = low < count and be(list, at, 2) == offset
    if is_there ~= has[offset] then
      pieces[#pieces + 1] = sub(list, from, at - 1)
      from = at
      if is_there then from = at + 2 else pieces[#pieces + 1] = pack('>I2', offset) end
    end
  end
  pieces[#pieces + 1] = sub(list, from)
  local edited = table.concat(pieces)
  return #edited / 2 > MOST_LISTED and bitmap_of(edited) or edited
end

-- The same for a bitmap.
local function edit_bitmap(bitmap, offsets, has)
  local count, pieces, from, i = be(bitmap, 1, COUNT), {}, COUNT + 1, 1
  while offsets[i] do
    local index = floor(offsets[i] / 8)
    local at = COUNT + 1 + index
    local bits = byte(bitmap, at)
    while offsets[i] and floor(offsets[i] / 8) == index do
      local bit = 2 ^ (7 - offsets[i] % 8)
      local is_there = bits % (2 * bit) >= bit
      if is_there ~= has[offsets[i]] then
        bits, count = is_there and bits - bit or bits + bit, is_there and count - 1 or count + 1
      end
      i = i + 1
    end
    pieces[#pieces + 1] = sub(bitmap, from, at - 1)
    pieces[#pieces + 1] = char(bits)
    from = at + 1
  end
  local edited = pack(COUNT_FORMAT, count) .. table.concat(pieces) .. sub(bitmap, from)
  return count <= MOST_LISTED / 2 and list_of(edited) or edited
end

local function write_members(key, code, has)
  local field, offsets = digits(code), sorted_keys(has)
  if #offsets == 0 then return end
  local members = redis.call('HGET', key, field) or ''
  local edit = #members % 2 == 0 and edit_list or edit_bitmap
  local edited = edit(members, offsets, has)
  if edited == members then return end
  if edited == '' then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, edited)
  end
end

local function write_profiles()
  for id, codes in pairs(noted_codes) do write_noted_codes(id, codes) end
  for segment, topics in pairs(noted_members) do
    for code, has in pairs(topics) do write_members(topics_key(digits(segment)), code, has) end
  end
end
