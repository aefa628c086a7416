#!lua flags=allow-oom
-- A process has marked what it knew of an older history: its sessions are no longer awaited.
-- KEYS: awaited, workers' wake-up lists. ARGV: the sessions.
--! parts

redis.call('ZCARD', KEYS[2])
local gone = 0
for _, session in ipairs(ARGV) do gone = gone + redis.call('SREM', KEYS[1], session) end
-- The last awaited worker is here: those that were held up may claim now.
if gone > 0 and redis.call('EXISTS', KEYS[1]) == 0 then wake(KEYS[2]) end
return gone
