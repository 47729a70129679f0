-- Begins records on one ledger page, each only if there is none. KEYS[1]: the page; KEYS[2]: the
-- list of pages; KEYS[3]: the marks of entries that were evicted lately; then the lists of entries, of
-- the apps that the records are of. ARGV: until when the page is kept at least, and the shortest time for
-- which it is kept from now on, in milliseconds; the stub that says that an entry is expanded; how many
-- marks follow; the mark of each record, if marks are looked for; for each list of entries how many
-- members it gets, and the members, each behind a 0; then for each record its field, and the record. No
-- field comes twice.
--
-- Answers as swap_records.lua does, which could begin records too. But here there is nearly always no
-- record, and the arguments are passed on without making a string of them. A page that is full, or was,
-- answers as if the stub were there: the entry may have a page of its own (pages.lua). So does a
-- record that would begin and whose mark is known: begin_expanded.lua then tells so.

local MARK, STUB, MARKS = 4, ARGV[3], tonumber(ARGV[4])
local LISTS = MARK + MARKS + 1
local FIRST = LISTS
for _ = 4, #KEYS do FIRST = FIRST + 1 + 2 * tonumber(ARGV[FIRST]) end
local fields, refused = {}, {}
for i = FIRST, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
local set, from, count = ARGV, FIRST, redis.call('HLEN', KEYS[1])
local room = redis.call('HEXISTS', KEYS[1], '+') == 1 and 0 or math.max(MOST_ENTRIES - count, 0)
for number, record in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
  if record or room == 0 or (MARKS > 0 and is_evicted(KEYS[3], ARGV[MARK + number])) then
    refused[#refused + 1] = number - 1
    refused[#refused + 1] = record or STUB
  else
    room = room - 1
  end
end
if #refused > 0 then
  local is_there = {}
  for i = 1, #refused, 2 do is_there[refused[i]] = true end
  set, from = {}, 1
  for number, field in ipairs(fields) do
    if not is_there[number - 1] then
      set[#set + 1] = field
      set[#set + 1] = ARGV[FIRST + 2 * number - 1]
    end
  end
end
if #set >= from then
  redis.call('HSET', KEYS[1], unpack(set, from))
  local now = clock()
  local wanted = math.max(tonumber(ARGV[1]), now + tonumber(ARGV[2]))
  keep_page(KEYS[1], KEYS[2], count == 0, wanted, now)
  local at = LISTS
  for list = 4, #KEYS do
    local last = at + 2 * tonumber(ARGV[at])
    list_entries(KEYS[list], at + 1, last, wanted, now)
    at = last + 1
  end
end
return refused
