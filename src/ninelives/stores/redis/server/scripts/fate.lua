#!lua flags=allow-oom
-- Return whether the last write of a broken connection was made, and make sure that it will not be made later.
-- KEYS: writers. ARGV: connection, its count.
local known = redis.call('HGET', KEYS[1], ARGV[1])
-- Equal to the last count only: each connection sends one
-- write at a time, so a lower one is an earlier write.
if known and string.match(known, '^(%d+)') == ARGV[2] then return 1 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], 'x ' .. string.format('%d', tonumber(time[1]) * 1000))
return 0
