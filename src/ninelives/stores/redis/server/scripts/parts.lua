-- Code that several scripts share; it replaces the line `--! parts` of each.

local function now(given)
  if given ~= '' then return given end
  local time = redis.call('TIME')
  return string.format('%d', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
end

-- Wake waiting processes: each member is the name of a list that its owner blocks on; its score is when it expires.
local function wake(ears)
  if redis.call('ZCARD', ears) == 0 then return end
  local time = redis.call('TIME')
  local seconds = tonumber(time[1])
  for _, ear in ipairs(redis.call('ZRANGEBYSCORE', ears, '-inf', seconds)) do
    redis.call('ZREM', ears, ear)
    redis.call('DEL', ear)
  end
  for _, ear in ipairs(redis.call('ZRANGE', ears, 0, -1)) do
    if redis.call('EXISTS', ear) == 0 then redis.call('RPUSH', ear, '1') end
  end
end

-- Count this write: by its count, a server that has lost some is recognised.
local function count_write(store, written)
  redis.call('HSET', store, 'writes', string.format('%d', written + 1))
  return written + 1
end
