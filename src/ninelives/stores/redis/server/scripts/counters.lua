#!lua flags=no-writes
-- Read at one moment what the counters are computed from.
-- KEYS: the counters, the live sessions by age, the sessions' rows, then the runs in each state.
-- Answers: the counters, the rows of live sessions, and the runs in each state with their numbers.
local rows, states = {}, {}
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  rows[#rows + 1] = redis.call('HGET', KEYS[3], name)
end
for one = 4, #KEYS do states[#states + 1] = redis.call('ZRANGE', KEYS[one], 0, -1, 'WITHSCORES') end
return {redis.call('HGETALL', KEYS[1]), rows, states}
