-- Recalls a message. It does one of three things, by what is stored of the message:
--
-- - A record is only answered: the caller changes it by compare-and-swap.
-- - If nothing is stored, and the caller says when the message was accepted, it begins an expanded
--   entry that is recalled, for the worker that begins the message later.
-- - An expanded entry of this app is marked as recalled, unless every device of it is counted. One
--   that expired and was sent to no device can be recalled all the same: a duplicate of the
--   message, with another deduplication nonce, may still be waiting in the queue.
--
-- KEYS[1]: the expanded entry; KEYS[2]: its page; KEYS[3]: the list of pages; KEYS[4]: the page that
-- the entry has if its own is full. ARGV: the app, the time, the state of a partition that has ended, the field of the entry's record, and the stub that
-- says there that the entry is expanded; then, for a message that may have no entry yet, when it
-- was accepted and until when its recall is kept. Answers the expanded entry, empty if this app has
-- none with this id; or the record.

local function number(field) return tonumber(redis.call('HGET', KEYS[1], field) or 0) end

local function is_unsent()
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'failed:' then return false end
  end
  if number('retried:unanswered') > 0 then return false end
  return number('sent') == 0 and number('expired') > 0
end

local function is_closed()
  local partitions = redis.call('HGET', KEYS[1], 'partitions')
  if not partitions then return false end
  for partition = 0, tonumber(partitions) - 1 do
    if redis.call('HGET', KEYS[1], 'state:' .. partition) ~= ARGV[3] then return false end
  end
  local counted = number('sent') + number('expired') + number('recalled')
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 7) == 'failed:' then counted = counted + number(field) end
  end
  return counted >= number('targeted')
end

local record = redis.call('HGET', KEYS[2], ARGV[4])
if record and record ~= ARGV[5] then return record end
if ARGV[6] and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'app', ARGV[1], 'accepted_at', ARGV[6], 'recalled_at', ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], ARGV[7])
  add_stub(KEYS[2], KEYS[4], KEYS[3], ARGV[4], ARGV[5], tonumber(ARGV[7]))
end
if redis.call('HGET', KEYS[1], 'app') ~= ARGV[1] then return {} end
if not is_closed() or is_unsent() then redis.call('HSETNX', KEYS[1], 'recalled_at', ARGV[2]) end
return redis.call('HGETALL', KEYS[1])
