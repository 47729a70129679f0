-- Forgets the users with one hash of user ids, for an app that was removed. KEYS[1]: the users. ARGV[1]: for how many seconds
-- no device is added to them any more.
--
-- Until then the key has an empty field, which no user has.

redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], '', '')
redis.call('EXPIRE', KEYS[1], ARGV[1])
