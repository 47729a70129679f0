-- Answers the time of the server's clock in seconds, and the epoch of an app's dictionaries: as long as
-- it stays the same, no code is retired and none loses its value. KEYS: the state.

return { tonumber(redis.call('TIME')[1]), tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0) }
