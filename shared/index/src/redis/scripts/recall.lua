-- Recalls a message unless every device of it is settled. One that expired and was sent to no device
-- can be recalled all the same: another copy of it may still be waiting. KEYS[1]: the entry; KEYS[2]:
-- its page; KEYS[3]: the list of pages. ARGV: the app, the time, the state of a partition that has
-- ended, the field of the entry's record, and what says there that the entry has fields of its own;
-- and, for a message that may have no entry yet, when it was accepted and when its recall may be
-- forgotten. Answers the entry, empty if the app has none with this id; or its record, if it is kept
-- as one.

local function number(field) return tonumber(redis.call('HGET', KEYS[1], field) or 0) end

local function is_unsent()
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'failed:' then return false end
  end
  if number('retried:unanswered') > 0 then return false end
  return number('sent') == 0 and number('expired') > 0
end

local function is_closed()
  local strands = redis.call('HGET', KEYS[1], 'strands')
  if not strands then return false end
  for strand = 0, tonumber(strands) - 1 do
    if redis.call('HGET', KEYS[1], 'part:' .. strand) ~= ARGV[3] then return false end
  end
  local settled = number('sent') + number('expired') + number('recalled')
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'failed:' then settled = settled + number(field) end
  end
  return settled >= number('targeted')
end

local record = redis.call('HGET', KEYS[2], ARGV[4])
if record and record ~= ARGV[5] then return record end
if ARGV[6] and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'app', ARGV[1], 'accepted_at', ARGV[6], 'recalled_at', ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], ARGV[7])
  local added = redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
  local is_new = redis.call('HLEN', KEYS[2]) == added
  keep_page(KEYS[2], KEYS[3], is_new, tonumber(ARGV[7]), clock())
end
if redis.call('HGET', KEYS[1], 'app') ~= ARGV[1] then return {} end
if not is_closed() or is_unsent() then redis.call('HSETNX', KEYS[1], 'recalled_at', ARGV[2]) end
return redis.call('HGETALL', KEYS[1])
