-- Functions that the scripts share that may begin a ledger page.

-- The time in milliseconds.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
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

