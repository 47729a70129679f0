-- Adds a broadcast to the list of those that are not finished, unless it is there. KEYS[1]: the list.
-- ARGV: the message, the broadcast, and how many broadcasts the list may have.

if redis.call('HLEN', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
end
