#!lua flags=allow-oom
-- Tell whether the last write of a line that broke was made, and see to it that it will not be any more.
-- KEYS: writers. ARGV: line, its count.
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and string.match(known, '^(%d+)') == ARGV[2] then return 1 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], 'x ' .. string.format('%d', tonumber(time[1]) * 1000))
return 0
