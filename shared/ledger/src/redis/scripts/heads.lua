-- Reads the newest members of an app's lists of entries, in several stripes. Only a single server has all
-- these keys; in a cluster each list is a request of its own. KEYS: what the keys of each stripe begin
-- with. ARGV: the most members of a list to read; then for each list of a stripe what its key ends with,
-- and the bound that the members are below.
--
-- Answers for each list with such members its number, counted from 0 through all stripes, and the members,
-- the greatest first. Most apps have one or two of the lists, and a call for one that does not exist takes
-- as long as any other, so the lists of a stripe are counted first.

local limit, lists = ARGV[1], (#ARGV - 1) / 2
local answer, keys = {}, {}
for stripe, base in ipairs(KEYS) do
  for list = 1, lists do keys[list] = base .. ARGV[2 * list] end
  local unread = redis.call('EXISTS', unpack(keys))
  for list = 1, lists do
    if unread == 0 then break end
    local bound = ARGV[2 * list + 1]
    local members = redis.call('ZREVRANGEBYLEX', keys[list], bound, '-', 'LIMIT', 0, limit)
    if #members > 0 then
      unread = unread - 1
      answer[#answer + 1] = (stripe - 1) * lists + list - 1
      answer[#answer + 1] = members
    end
  end
end
return answer
