#!lua flags=no-writes
-- Read everything that is stored of a run, at one moment.
-- KEYS: items, keys, then the run's: row, journal, signals, sent signals, items, keys that it ever reserved.
-- Answers: the row's parts and its mark of lost writes ('' if absent), then its records, signals, the count of all
--   its signals, those sent with an id, its items and its keys.
local parts = redis.call('HMGET', KEYS[3], 'r', 't', 'x')
local answer = {parts[1] or '', parts[2] or '', parts[3] or '', redis.call('LRANGE', KEYS[4], 0, -1)}
answer[5] = redis.call('HVALS', KEYS[5])
answer[6] = redis.call('HGET', KEYS[6], 'n') or '0'
answer[7], answer[8], answer[9] = {}, {}, {}
local sent = redis.call('HGETALL', KEYS[6])
for place = 1, #sent, 2 do
  if sent[place] ~= 'n' then table.insert(answer[7], sent[place + 1]) end
end
for _, name in ipairs(redis.call('ZRANGE', KEYS[7], 0, -1)) do
  table.insert(answer[8], redis.call('HGET', KEYS[1], name) or '')
end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[8])) do
  local key = redis.call('HGET', KEYS[2], name)
  if key then table.insert(answer[9], key) end
end
return answer
