-- Moves an entry that has ended from fields of its own to a record. KEYS[1]: the page; KEYS[2]: the
-- entry. ARGV: the field of the record, what says there that the entry is elsewhere, the record,
-- the field of the partition's state and its value when it has ended, and when the message was
-- recalled (empty if it was not). Answers whether it was moved.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('HGET', KEYS[2], ARGV[4]) ~= ARGV[5] then return 0 end
if (redis.call('HGET', KEYS[2], 'recalled_at') or '') ~= ARGV[6] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('DEL', KEYS[2])
return 1
