-- Adds counts to the hours of an app. KEYS[1]: the hours; KEYS[2]: exists if the app was removed.
-- ARGV: the time; then for each hour its name, how many messages were accepted and closed, until when
-- one of them can wait, and until when their ledger entries are kept. Answers all hours.
--
-- The form of an hour is that of UsageCounts in usage.rs, and an hour is over when is_over there says
-- so. Hours that are over are dropped when a new one begins, and with the key when all are.

if redis.call('EXISTS', KEYS[2]) == 1 then return {} end

local function parse(counts)
  local accepted, closed, waits, kept = string.match(counts, '^(%S+) (%S+) (%S+) (%S+)$')
  return tonumber(accepted), tonumber(closed), tonumber(waits), tonumber(kept)
end

local now, is_new = tonumber(ARGV[1]), false
for i = 2, #ARGV, 5 do
  local before = redis.call('HGET', KEYS[1], ARGV[i])
  local accepted, closed, waits, kept = parse(before or '0 0 0 0')
  accepted = accepted + tonumber(ARGV[i + 1])
  closed = closed + tonumber(ARGV[i + 2])
  waits = math.max(waits, tonumber(ARGV[i + 3]))
  kept = math.max(kept, tonumber(ARGV[i + 4]))
  is_new = is_new or not before
  redis.call('HSET', KEYS[1], ARGV[i], string.format('%d %d %d %d', accepted, closed, waits, kept))
end
local hours = redis.call('HGETALL', KEYS[1])
if is_new then
  local last = now
  for i = 1, #hours, 2 do
    local accepted, closed, waits, kept = parse(hours[i + 1])
    if kept < now and (waits < now or accepted <= closed) then
      redis.call('HDEL', KEYS[1], hours[i])
    end
    last = math.max(last, waits, kept)
  end
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', last + 60000))
end
return hours
