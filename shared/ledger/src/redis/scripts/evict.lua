-- Evicts entries of one ledger page that are still as they were read. KEYS[1]: the page; KEYS[2]: the
-- list with the page; KEYS[3]: the list of pages that were read and have entries left; KEYS[4]: the
-- latest times of acceptance among the evicted entries of the stripe; then the expanded entries to
-- evict; then the lists of entries that lead to what is evicted. ARGV: the page's element in the list; how
-- many apps lose entries, and how many records follow; how many of the keys are such lists;
-- for each app its tag and the latest time at which a message of its entries was accepted, in
-- milliseconds; for each record its field and its bytes; then for each expanded entry its field on the
-- page, the stub that is there, and the entry's deduplication nonce (empty if the entry does not
-- exist); then for each list of entries how many members follow, and the members, each behind what the
-- page must no longer have: a field, or all fields that end with the tag of an app.
--
-- A page that is then empty does not exist any more, and leaves the lists. One that has entries left
-- goes to the end of the list KEYS[3]. Answers how many entries were evicted, and 1 if the page has
-- entries left, or 0.

-- The most apps of which a stripe keeps a time of their own.
local MOST_APPS = 64

local apps, records, lists, evicted = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), 0
local at = 5 + 2 * apps
for i = at, at - 1 + 2 * records, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    evicted = evicted + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
at = at + 2 * records
for number = 5, #KEYS - lists do
  local field, stub, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_same = (redis.call('HGET', KEYS[number], 'dedup_nonce') or '') == nonce
  if is_same and redis.call('HGET', KEYS[1], field) == stub then
    redis.call('DEL', KEYS[number])
    evicted = evicted + redis.call('HDEL', KEYS[1], field)
  end
  at = at + 3
end
local there = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  there[field], there[string.sub(field, 7)] = true, true
end
for number = #KEYS - lists + 1, #KEYS do
  local last = at + 2 * tonumber(ARGV[at])
  for i = at + 1, last, 2 do
    if not there[ARGV[i]] then redis.call('ZREM', KEYS[number], ARGV[i + 1]) end
  end
  at = last + 1
end
local is_left = redis.call('EXISTS', KEYS[1])
if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 1 and is_left == 1 then
  redis.call('RPUSH', KEYS[3], ARGV[1])
end
if evicted > 0 then
  local function note(app, time)
    if time > tonumber(redis.call('HGET', KEYS[4], app) or 0) then
      redis.call('HSET', KEYS[4], app, string.format('%d', time))
    end
  end
  for i = 5, 4 + 2 * apps, 2 do note(ARGV[i], tonumber(ARGV[i + 1])) end
  -- The app whose time is the earliest loses its field: for a message of an app without one, the time
  -- of '*' holds.
  while redis.call('HLEN', KEYS[4]) > MOST_APPS do
    local fields, first = redis.call('HGETALL', KEYS[4]), nil
    for i = 1, #fields, 2 do
      local is_earlier = first == nil or tonumber(fields[i + 1]) < tonumber(fields[first + 1])
      if fields[i] ~= '*' and is_earlier then first = i end
    end
    note('*', tonumber(fields[first + 1]))
    redis.call('HDEL', KEYS[4], fields[first])
  end
end
return { evicted, is_left }
