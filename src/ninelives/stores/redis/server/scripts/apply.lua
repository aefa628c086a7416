#!lua
-- Write the result of a transaction, on the condition that everything it depends on is unchanged.
-- KEYS: store, writers, workers' wake-up lists, readers' wake-up lists, then those that ARGV refers to by position.
-- ARGV: version and the store's id, connection, its count, 1 if there is work, 1 if there is output, number of checks, the checks, the writes.
-- A check: key, field, how ('=' has this value, '-' is absent, '+' exists), value.
-- A write: verb, key, and two more.
-- Answers: the outcome ('done', 'conflict', 'version', 'gone', 'closed') and the count of writes.
-- Nothing is written before everything is checked: a script that fails is not rolled back.
--! parts

-- Each fails on a key of another type, as the write would, but before anything is written.
local LOOKS = {
  HSET = 'HLEN', HDEL = 'HLEN', LESS = 'HLEN', ZADD = 'ZCARD', NEXT = 'ZCARD', MARK = 'ZCARD', ZREM = 'ZCARD',
  SADD = 'SCARD', SREM = 'SCARD', REFER = 'SCARD', FORGET = 'SCARD', RPUSH = 'LLEN', LTRIM = 'LLEN', SET = 'STRLEN',
  DEL = 'EXISTS',
}

local function key(number) return KEYS[tonumber(number)] end

local function number_in(name, field, otherwise)
  return tonumber(redis.call('HGET', name, field) or otherwise) or otherwise
end

local function set_number(name, field, number) redis.call('HSET', name, field, string.format('%d', number)) end

local written

local VERBS = {
  -- Note with which write of the store a member was last changed.
  MARK = function(name, member) redis.call('ZADD', name, string.format('%d', written), member) end,
  -- Add a member behind all others.
  NEXT = function(name, member)
    local last = redis.call('ZRANGE', name, -1, -1, 'WITHSCORES')
    redis.call('ZADD', name, string.format('%d', tonumber(last[2] or 0) + 1), member)
  end,
  -- Drop a lane's field when the lane is empty.
  LESS = function(name, field, lane)
    if redis.call('EXISTS', key(lane)) == 0 then redis.call('HDEL', name, field) end
  end,
  -- Record that a run refers to a blob, and count the runs that do.
  REFER = function(name, digest, counts)
    if redis.call('SADD', name, digest) == 1 then
      set_number(key(counts), digest, number_in(key(counts), digest, 0) + 1)
    end
  end,
  -- Drop all blob references of a run.
  FORGET = function(name, _, counts)
    for _, digest in ipairs(redis.call('SMEMBERS', name)) do
      local known = number_in(key(counts), digest, 1)
      if known > 1 then set_number(key(counts), digest, known - 1)
      else redis.call('HDEL', key(counts), digest) end
    end
    redis.call('DEL', name)
  end,
  DEL = function(name) redis.call('DEL', name) end,
}
for _, verb in ipairs({'HDEL', 'ZREM', 'SADD', 'SREM', 'RPUSH', 'SET'}) do
  VERBS[verb] = function(name, value) redis.call(verb, name, value) end
end
for _, verb in ipairs({'HSET', 'ZADD', 'LTRIM'}) do
  VERBS[verb] = function(name, first, second) redis.call(verb, name, first, second) end
end

local known = redis.call('HMGET', KEYS[1], 'version', 'writes', 'id')
written = tonumber(known[2] or '0')
local version, id = string.match(ARGV[1], '^(%S+) (.*)$')
-- Before the version: a store that was emptied and made again may have the same one.
if id ~= '' and known[3] ~= id then return {'gone', written} end
if known[1] ~= version then return {'version', written} end
local writer = redis.call('HGET', KEYS[2], ARGV[2])
-- Another connection has asked for the fate of this write and was answered "not made": it must stay so.
if writer and string.sub(writer, 1, 1) == 'x' then return {'closed', written} end
local first = 7 + 4 * tonumber(ARGV[6])
for one = 7, first - 1, 4 do
  local value, how = redis.call('HGET', key(ARGV[one]), ARGV[one + 1]), ARGV[one + 2]
  local is_so = value and true
  if how == '=' then is_so = value == ARGV[one + 3] elseif how == '-' then is_so = not value end
  if not is_so then return {'conflict', written} end
end
for one = first, #ARGV, 4 do redis.call(LOOKS[ARGV[one]], key(ARGV[one + 1])) end
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
-- Written with the rest, or not at all: by this count `fate.lua` knows whether the rest was.
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. now(''))
written = count_write(KEYS[1], written)
for one = first, #ARGV, 4 do VERBS[ARGV[one]](key(ARGV[one + 1]), ARGV[one + 2], ARGV[one + 3]) end
if ARGV[4] == '1' then wake(KEYS[3]) end
if ARGV[5] == '1' then wake(KEYS[4]) end
return {'done', written}
