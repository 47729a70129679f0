-- Lists devices of an app that are removed as gone. KEYS[1]: the list, newest first; KEYS[2]: exists if the app
-- was removed. ARGV: how many are listed, for how many milliseconds, and the time before which they go; then
-- the devices, each as the text of RemovedDevice in gone.rs, which begins with its time.

if redis.call('EXISTS', KEYS[2]) == 1 then return end
for i = 4, #ARGV do redis.call('LPUSH', KEYS[1], ARGV[i]) end
redis.call('LTRIM', KEYS[1], 0, ARGV[1] - 1)
local old = tonumber(ARGV[3])
local oldest = redis.call('LINDEX', KEYS[1], -1)
while oldest and tonumber(string.match(oldest, '^%d+') or 0) < old do
  redis.call('RPOP', KEYS[1])
  oldest = redis.call('LINDEX', KEYS[1], -1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
