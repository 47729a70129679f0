-- Changes records of one ledger page, each only if it still begins as expected. KEYS[1]: the page;
-- KEYS[2]: the list of pages; then the lists of entries that are kept as long as the page. ARGV: until
-- when the page is kept at least (0 leaves that as it is), and the shortest time for which it is kept
-- from now on, in milliseconds; the longest record; then
-- for each change its field, the bytes with which its record must begin (empty: there must be no
-- record), the bytes that replace them, and the bytes that are appended. No field comes twice.
--
-- Answers nothing if all changes were made; otherwise for each that was not its number, from 0, and
-- the record as it is, empty if there is none.

local fields = {}
for i = 4, #ARGV, 4 do fields[#fields + 1] = ARGV[i] end
local records = redis.call('HMGET', KEYS[1], unpack(fields))
local longest, set, refused = tonumber(ARGV[3]), {}, {}
for number, field in ipairs(fields) do
  local i = number * 4
  local record, expected, behind = records[number], ARGV[i + 1], nil
  if expected == '' then
    if not record then behind = '' end
  elseif record and string.find(record, expected, 1, true) == 1 then
    behind = string.sub(record, #expected + 1)
  end
  local new = behind and ARGV[i + 2] .. behind .. ARGV[i + 3]
  if new and #new <= longest then
    set[#set + 1] = field
    set[#set + 1] = new
  else
    refused[#refused + 1] = number - 1
    refused[#refused + 1] = record or ''
  end
end
if #set > 0 then
  local added = redis.call('HSET', KEYS[1], unpack(set))
  if ARGV[1] ~= '0' then
    local now = clock()
    local is_new = redis.call('HLEN', KEYS[1]) == added
    local wanted = math.max(tonumber(ARGV[1]), now + tonumber(ARGV[2]))
    keep_page(KEYS[1], KEYS[2], is_new, wanted, now)
    keep_lists(3, wanted, now)
  end
end
return refused
