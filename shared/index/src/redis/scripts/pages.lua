-- What the scripts share that may begin a page of the ledger.

-- The time in milliseconds.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Keeps a page until this time at least. One that was begun just now goes into the list of the pages
-- of its part, with the time of that.
local function keep_page(page, list, is_new, wanted, now)
  if is_new then
    redis.call('RPUSH', list, string.format('%x ', now) .. string.match(page, '}:p(.*)$'))
  end
  if redis.call('PTTL', page) < wanted - now then
    redis.call('PEXPIREAT', page, string.format('%d', wanted))
  end
end

