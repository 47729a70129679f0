-- Appends an event to the audit trail. KEYS[1]: the trail, newest first. ARGV: the event, and how
-- many events are kept.

redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
