#!lua flags=no-writes
-- Search for runs that wait for a worker. KEYS: sessions, awaited, documents, then the names of lanes.
-- ARGV: session, host, now ('' is the server's), the tag, then for each lanes' name how many runs are wanted.
-- Answers: the session's row, the time, how many workers are awaited, the document `halts`, then for each name a list of
-- {id, rest, tail}: from each of its lanes the due ones, as many as wanted, and the next one after these.
--! parts

local time = now(ARGV[3])
local answer = {redis.call('HGET', KEYS[1], ARGV[1]) or '', time, redis.call('SCARD', KEYS[2])}
answer[4] = redis.call('HGET', KEYS[3], 'halts') or ''
for place = 4, #KEYS do
  local found, of_agent = {}, string.sub(KEYS[place], #ARGV[4] + #'lanes:' + 1)
  for _, field in ipairs(redis.call('HKEYS', KEYS[place])) do
    local pin = string.match(field, '^%-?%d+%z(.*)$')
    if pin == '' or pin == ARGV[2] then
      local lane = ARGV[4] .. 'lane:' .. of_agent .. '\0' .. field
      local names = redis.call('ZRANGE', lane, 0, ARGV[place + 1], 'WITHSCORES')
      for one = 1, #names, 2 do
        local id = string.sub(names[one], 21)
        local row = redis.call('HMGET', ARGV[4] .. 'run:' .. id, 'r', 't')
        found[#found + 1] = {id, row[1] or '', row[2] or ''}
        if tonumber(names[one + 1]) > tonumber(time) then break end
      end
    end
  end
  answer[#answer + 1] = found
end
return answer
