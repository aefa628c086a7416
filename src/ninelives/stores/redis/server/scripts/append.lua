#!lua
-- Append to many runs, each on the condition that its row begins with its owner's fence.
-- KEYS: store, readers' wake-up lists, documents, then two for each run: its row, its journal.
-- ARGV: version, now ('' is the server's), 1 if there is output, a document's name that the first runs require, how its
--   value begins at the version that they require ('' if it must not exist), how many runs require it, then for each run:
--   fence before, fence after, effect_length, the sums of its journal ('' leaves them), number of records, the records.
-- Answers: the count of writes, then the positions of the runs that were appended to. 'version' if that is another.
-- Nothing is written before everything is checked: a script that fails is not rolled back.
--! parts

local known = redis.call('HMGET', KEYS[1], 'version', 'writes')
if known[1] ~= ARGV[1] then return {'version'} end
local changed, at = now(ARGV[2]), 6
local needing = tonumber(ARGV[6])
if needing > 0 then
  local document = redis.call('HGET', KEYS[3], ARGV[4])
  local is_met = not document
  if ARGV[5] ~= '' then is_met = document and string.sub(document, 1, #ARGV[5]) == ARGV[5] end
  if is_met then needing = 0 end
end
local found = {}
for place = 1, (#KEYS - 3) / 2 do
  local row, journal = KEYS[2 * place + 2], KEYS[2 * place + 3]
  local fence, after = ARGV[at + 1], ARGV[at + 2]
  local effects, sums, records = ARGV[at + 3], ARGV[at + 4], tonumber(ARGV[at + 5])
  local tail = redis.call('HGET', row, 't')
  if place > needing and tail and string.sub(tail, 1, #fence) == fence then
    local before, rest, known = string.match(string.sub(tail, #fence + 1), '^ %d+ (%d+)( %d+ %d+ %d+ )(.*)$')
    if before then
      rest = rest .. (sums ~= '' and sums or known)
      -- Fails on a key of another type now, and not after the row was written.
      redis.call('LLEN', journal)
      -- It never shrinks: what an earlier commit made visible still rests on these records.
      if tonumber(before) > tonumber(effects) then effects = before end
      found[#found + 1] = {place, row, journal, after .. ' ' .. changed .. ' ' .. effects .. rest, at + 6, records}
    end
  end
  at = at + 5 + records
end
-- The same for the wake-up lists, which `wake` writes last.
redis.call('ZCARD', KEYS[2])
local written = tonumber(known[2] or '0')
local answer = {written}
if #found == 0 then return answer end
for _, one in ipairs(found) do
  redis.call('HSET', one[2], 't', one[4])
  for record = one[5], one[5] + one[6] - 1 do redis.call('RPUSH', one[3], ARGV[record]) end
  answer[#answer + 1] = one[1]
end
answer[1] = count_write(KEYS[1], written)
if ARGV[3] == '1' then wake(KEYS[2]) end
return answer
