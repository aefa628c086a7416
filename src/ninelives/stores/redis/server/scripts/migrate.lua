#!lua
-- Migrate one run to the next version, on the condition that this migration is under way and the run is as it was read.
-- KEYS: store, the run's row, then one sorted set for each label.
-- ARGV: the store's version during the migration, the row's tail as it was read, the new tail, the run's id, its number.
-- Answers: 1 if it was written, 0 if the run has changed, 'version' if the store has another version.
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 'version' end
if redis.call('HGET', KEYS[2], 't') ~= ARGV[2] then return 0 end
-- Fails on a key of another type before anything is written.
for place = 3, #KEYS do redis.call('ZCARD', KEYS[place]) end
redis.call('HSET', KEYS[2], 't', ARGV[3])
for place = 3, #KEYS do redis.call('ZADD', KEYS[place], ARGV[5], ARGV[4]) end
redis.call('HSET', KEYS[1], 'migrated', ARGV[5])
return 1
