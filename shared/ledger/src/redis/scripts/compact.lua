-- Makes an expanded entry that has ended a record. KEYS[1]: the page; KEYS[2]: the expanded entry.
-- ARGV: the field of the record, the stub that must be there, the record, the field of the
-- partition's state and its value when it has ended, and when the message was recalled (empty if it
-- was not). Answers 1; or 0 if the entry is not as described, and changes nothing.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then return 0 end
if (redis.call('HGET', KEYS[2], 'recalled_at') or '') ~= ARGV[6] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
