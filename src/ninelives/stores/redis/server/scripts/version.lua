#!lua
-- Set the store's version, on the condition that it is the one given. KEYS: store. ARGV: version before, after.
-- Answers: the version that it has now, '' for a store that has none.
local known = redis.call('HGET', KEYS[1], 'version')
if known == ARGV[1] then
  redis.call('HSET', KEYS[1], 'version', ARGV[2])
  redis.call('HDEL', KEYS[1], 'migrated')
  known = ARGV[2]
end
return known or ''
