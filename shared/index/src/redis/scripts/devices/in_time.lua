-- Before a script that writes codes: its last argument is the time, in seconds, until when they may be
-- written. Later they may mean other values, so nothing is written and the answer is the time.
do
  local now = tonumber(redis.call('TIME')[1])
  if now > tonumber(table.remove(ARGV)) then return now end
end
