#!lua flags=no-writes
-- Read runs with their records from one on, the record before these, signals not taken, and items, at one moment.
-- KEYS: items, then four for each run: row, journal, signals, items.
-- ARGV: the first record wanted ('' is the current turn's first), or 'news' for no records and only runs whose
--   news is not the number given for each.
local answer = {}
for place = 1, (#KEYS - 1) / 4 do
  local row, journal, signals, items = unpack(KEYS, 4 * place - 2, 4 * place + 1)
  local parts = redis.call('HMGET', row, 'r', 't', 'x')
  local one = {parts[1], parts[2], parts[3]}
  local tail, base, turn, news = parts[2] or '', nil, nil, nil
  local length, at = string.match(tail, '^.%d+ (%d+) ()')
  if length then base, turn, news = string.match(tail, '^ %d+ %d+ (%d+) (%d+) (%d+) ', at + 16) end  -- after the head
  local wanted = base ~= nil
  if ARGV[1] == 'news' then
    wanted = wanted and news ~= ARGV[place + 1]
  elseif wanted then
    base, length = tonumber(base), tonumber(length)
    local first = math.min(math.max(tonumber(ARGV[1] ~= '' and ARGV[1] or turn), base), length)
    one[4] = string.format('%d', first)
    one[5] = redis.call('LRANGE', journal, first - base, -1)
    one[6] = first > base and redis.call('LINDEX', journal, first - base - 1) or ''
  end
  if wanted then
    one[4], one[5], one[6] = one[4] or '', one[5] or {}, one[6] or ''
    one[7] = redis.call('HVALS', signals)
    local names = redis.call('ZRANGE', items, 0, -1)
    one[8] = {}
    for _, name in ipairs(names) do one[8][#one[8] + 1] = redis.call('HGET', KEYS[1], name) or '' end
  end
  if wanted or ARGV[1] ~= 'news' then
    one[1], one[2], one[3] = one[1] or '', one[2] or '', one[3] or ''
    answer[#answer + 1] = {place, one}
  end
end
return answer
