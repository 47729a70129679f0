-- Functions that the scripts share that may begin a ledger page.

-- The most entries of a page. Ids that are issued put about a hundred on one, but a client can make up
-- any number that share a page.
local MOST_ENTRIES = 256

-- The time in milliseconds.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Returns true if a mark is among those of entries that were evicted lately, in the list with this key.
local marks
local function is_evicted(list, mark)
  if not marks then
    marks = {}
    for _, known in ipairs(redis.call('LRANGE', list, 0, -1)) do marks[known] = true end
  end
  return marks[mark] == true
end

-- Keeps a page until `wanted` at least. If the page is new, it is added to the list of the pages of
-- its stripe, with the time of that. Its name in the list is cut out of its key, so that the script
-- needs no further argument and the two cannot differ (keys.rs reads such names).
local function keep_page(page, list, is_new, wanted, now)
  if is_new then
    redis.call('RPUSH', list, string.format('%x ', now) .. string.match(page, '}:p(.*)$'))
  end
  if redis.call('PTTL', page) < wanted - now then
    redis.call('PEXPIREAT', page, string.format('%d', wanted))
  end
end

-- The most members of a list of an app's entries: fewer than Redis keeps packed
-- (zset-max-listpack-entries), with room for those of one call.
local MOST_LISTED = 100

-- The time for which a list is kept longer than its entries, so that few calls set it, in milliseconds.
local LIST_SLACK = 3600000

-- Keeps the lists of entries with the keys from number `from` on until `wanted` at least, if they exist.
local function keep_lists(from, wanted, now)
  for list = from, #KEYS do
    if redis.call('PTTL', KEYS[list]) < wanted - now then
      redis.call('PEXPIREAT', KEYS[list], string.format('%d', wanted + LIST_SLACK))
    end
  end
end

-- Adds members to the list of an app's entries with this key: those of ARGV from number `from` to number
-- `last`, each behind its score, which is 0. If the list is full, the oldest members make room, and the
-- empty member, which is the first of all, says so.
local function list_entries(list, from, last, wanted, now)
  local is_known = redis.call('ZADD', list, unpack(ARGV, from, last)) == 0
  local excess = is_known and 0 or redis.call('ZCARD', list) - MOST_LISTED
  if excess > 0 then
    local added = redis.call('ZADD', list, 0, '')
    redis.call('ZREMRANGEBYRANK', list, 1, excess - 1 + added)
  end
  if redis.call('PTTL', list) < wanted - now then
    redis.call('PEXPIREAT', list, string.format('%d', wanted + LIST_SLACK))
  end
end

-- Puts the stub of an expanded entry on its page, or, if the page is full, on a page of its own. A
-- page that was full once is marked, and stays until it expires: from then on an entry without a field
-- there may have a page of its own.
local function add_stub(page, overflow, list, field, stub, wanted)
  local now = clock()
  local count = redis.call('HLEN', page)
  local is_marked = redis.call('HEXISTS', page, '+') == 1
  if redis.call('HEXISTS', page, field) == 0 and (is_marked or count >= MOST_ENTRIES) then
    redis.call('HSET', page, '+', '')
    keep_page(page, list, false, wanted, now)
    page = overflow
    count = redis.call('HLEN', page)
  end
  redis.call('HSET', page, field, stub)
  keep_page(page, list, count == 0, wanted, now)
end
