#!lua flags=allow-oom
-- Store which history the server has, and return what a process that knew an older one must know.
-- KEYS: store, lineage, workers (the sessions that may claim), awaited.
-- ARGV: the server's history, the last one that the process knew ('' is none).
-- Answers: the count of writes now, and what it was when the history after the known one began. A server that is
-- restarted, or takes over, has a new history, and begins with the writes that it has. From then on all workers are
-- awaited, and nothing is claimed: each may know of lost writes, and reports them when it connects.
local known = redis.call('HMGET', KEYS[1], 'writes', 'history')
local written = known[1] or '0'
redis.call('LLEN', KEYS[2])
redis.call('SCARD', KEYS[3])
redis.call('SCARD', KEYS[4])
if known[2] ~= ARGV[1] then
  redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. written)
  redis.call('LTRIM', KEYS[2], -1000, -1)
  redis.call('HSET', KEYS[1], 'history', ARGV[1])
  -- In the same script as the new history: no worker can claim before all are awaited.
  redis.call('SUNIONSTORE', KEYS[4], KEYS[3])
end
local began = written
if ARGV[2] ~= '' and ARGV[2] ~= ARGV[1] then
  local histories = redis.call('LRANGE', KEYS[2], 0, -1)
  for place = #histories, 1, -1 do
    local history, count = string.match(histories[place], '^(%S+) (%d+)$')
    -- Stop at the one that the process knew: `began` is now what the next one began with.
    if history == ARGV[2] then break end
    began = count or began
  end
end
return {tonumber(written), tonumber(began)}
