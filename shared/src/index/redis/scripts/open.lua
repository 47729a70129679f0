-- Begins a ledger entry unless there is one. KEYS[1]: the entry. ARGV: when it may be forgotten
-- and the shortest time it is kept, both in milliseconds; the copy whose entry is replaced, or
-- nothing; then fields and values, the app first. Answers the entry.
--
-- An entry without a 'copy' is a recall that came before the message: the message then begins
-- recalled, if the recall is of its own app. One that was recalled is never replaced.

local copy = redis.call('HGET', KEYS[1], 'copy')
local recalled = redis.call('HEXISTS', KEYS[1], 'recalled_at') == 1
if not copy or (copy == ARGV[3] and not recalled) then
  -- Only what is there is deleted: a script that has deleted may write without memory.
  local app = redis.call('HGET', KEYS[1], 'app')
  if copy or (app and app ~= ARGV[5]) then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], unpack(ARGV, 4))
  local time = redis.call('TIME')
  local earliest = tonumber(time[1]) * 1000 + tonumber(ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', math.max(tonumber(ARGV[1]), earliest)))
end
return redis.call('HGETALL', KEYS[1])
