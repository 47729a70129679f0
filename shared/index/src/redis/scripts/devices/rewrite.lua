-- Changes registered devices of one shard that have a profile or get one, each only if its record is still the one that
-- was read. ARGV: for each device its slot, its record as it was read and as it is to be, both with the length before it,
-- the byte of the carrier column, empty if that stays, and three bytes for each built-in attribute whose code changes:
-- its number and the code. Answers one letter a device: u(pdated), or l(eft unchanged).
--
-- A device is named once. One that is left unchanged is read and tried again by the caller.

local chunks, changed, answers, counts = {}, {}, {}, {}
local updated = {}

for i = 1, #ARGV, 5 do
  local slot, before = tonumber(ARGV[i]), ARGV[i + 1]
  local chunk = floor(slot / CHUNK)
  chunks[chunk] = chunks[chunk] or redis.call('GET', chunk_key(chunk)) or ''
  -- A chunk that ends early leaves its devices unchanged.
  local is_found, first, body, last = pcall(locate, chunks[chunk], slot)
  if is_found and sub(chunks[chunk], first, last) == before then
    local after = ARGV[i + 2]
    local new_body = bounds(after, 1)
    note_profile(before, body - first + 1, slot, false)
    note_profile(after, new_body, slot, true)
    if ARGV[i + 3] ~= '' then
      count_transports(counts, before, body - first + 1 + EPOCH, -1)
      count_transports(counts, after, new_body + EPOCH, 1)
    end
    chunks[chunk] = sub(chunks[chunk], 1, first - 1) .. after .. sub(chunks[chunk], last + 1)
    changed[chunk] = true
    updated[#updated + 1] = i
    answers[#answers + 1] = 'u'
  else
    answers[#answers + 1] = 'l'
  end
end
for _, i in ipairs(updated) do
  local slot = tonumber(ARGV[i])
  local segment = digits(floor(slot / SEGMENT))
  if redis.call('STRLEN', low_key('0', segment)) <= slot % SEGMENT then return elsewhere() end
end

-- The columns are written before the records, as in register.lua.
save_counts(counts, 1)
for _, i in ipairs(updated) do
  local slot, transport, codes = tonumber(ARGV[i]), ARGV[i + 3], ARGV[i + 4]
  local segment, position = digits(floor(slot / SEGMENT)), slot % SEGMENT
  if transport ~= '' then redis.call('SETRANGE', transport_key(segment), digits(position), transport) end
  for at = 1, #codes, 3 do
    local attribute = digits(byte(codes, at))
    redis.call('SETRANGE', low_key(attribute, segment), digits(position), sub(codes, at + 2, at + 2))
    write_plane(high_key(attribute, segment), position, sub(codes, at + 1, at + 1))
  end
end
write_profiles()
for chunk in pairs(changed) do redis.call('SET', chunk_key(chunk), chunks[chunk]) end
save_counts(counts, -1)
return table.concat(answers)
