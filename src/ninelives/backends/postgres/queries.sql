-- Every statement of the store, by name. Ids and values are always bound; `:schema` is the URL's.

-- part: now
(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- part: run
r.id, r.number, r.agent, r.fingerprint, r.queue, r.pin, r.priority, r.labels, r.parent, r.state, r.paused, r.cancelling,
  r.epoch, r.session, r.head, r.length, r.base, r.base_check, r.turn, r.turn_seq, r.due_ms, r.waits, r.news, r.deaths,
  r.death_length, r.solo_deaths, r.is_alone, r.left_by, r.created_ms, r.changed_ms, r.effect_length

-- part: record
c.seq, c.kind, c.step, c.at_ms, c.body, c.blobs, c."check"

-- part: item
i.id, i.run, i.kind, i.step, i.digest, i.body, i."to", i.deadline_ms, i.opened_ms, i.state, i.answer, i."by", i.answered_ms

-- part: keyrow
k.key, k.action, k.fingerprint, k.run, k.resumable, k.state, k.generation, k.body, k.blobs, k.changed_ms

-- part: session
s.id, s.host, s.pid, s.code, s.lease_ms, s.agents, s.keeper, s.started_ms, s.renewed_ms, s.renewed_boot, s.boot,
  s.ended_ms, s.cause, s.evidence

-- part: waiting
r.due_ms IS NOT NULL AND NOT r.paused AND r.state IN ('pending', 'checkpointed')

-- part: levels
RECURSIVE levels AS (
  SELECT w.queue, w.agent, w.quota, (
    SELECT max(r.priority) FROM :schema.runs AS r WHERE :waiting AND r.queue = w.queue AND r.agent = w.agent
      AND (r.deaths > 1) = %(alone)s) AS priority
  FROM unnest(%(queues)s::text[], %(agents)s::text[], %(quotas)s::bigint[]) AS w (queue, agent, quota)
  UNION ALL
  SELECT l.queue, l.agent, l.quota, (
    SELECT max(r.priority) FROM :schema.runs AS r
    WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = %(alone)s
      AND r.priority < l.priority)
  FROM levels AS l WHERE l.priority IS NOT NULL)

-- name: read_clock
SELECT :now;

-- name: begin
BEGIN;

-- name: begin_read
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: end
COMMIT;

-- name: undo
ROLLBACK;

-- name: count_write
INSERT INTO :schema.writers AS w (id, commits, touched_ms) VALUES (%s, 1, :now)
ON CONFLICT (id) DO UPDATE SET commits = w.commits + 1, touched_ms = excluded.touched_ms
RETURNING w.touched_ms, w.commits, (SELECT version FROM :schema.store);

-- name: read_writer
SELECT commits FROM :schema.writers WHERE id = %s FOR UPDATE;

-- name: sweep_writers
DELETE FROM :schema.writers WHERE touched_ms < :now - 86400000;

-- name: wake
SELECT pg_notify(d.channel, '') FROM unnest(%s::text[], %s::bigint[]) AS d (channel, door)
WHERE NOT pg_try_advisory_xact_lock(d.door);

-- name: settings
SELECT current_setting('server_version_num')::integer, current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('synchronous_commit'), current_setting('server_encoding'), pg_is_in_recovery();

-- name: tune
SELECT set_config('lock_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '30s', false),
  set_config('jit', 'off', false), set_config('enable_seqscan', 'off', false), set_config('timezone', 'UTC', false);

-- name: find_store
SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'store');

-- name: migration_lock
SELECT pg_advisory_xact_lock(%s);

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS :schema;

-- name: read_store
SELECT version FROM :schema.store;

-- name: insert_store
INSERT INTO :schema.store (one, id, version) VALUES (1, %s, %s);

-- name: insert_log_head
INSERT INTO :schema.log_head (one, length, head) VALUES (1, 0, %s);

-- name: set_version
UPDATE :schema.store SET version = %s;

-- name: next_run_numbers
SELECT nextval(':schema.run_numbers') FROM generate_series(1, %s);

-- name: insert_run
INSERT INTO :schema.runs (id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused,
  cancelling, epoch, session, head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length,
  solo_deaths, is_alone, left_by, created_ms, changed_ms, effect_length)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: read_runs
SELECT :run FROM :schema.runs AS r WHERE r.id = ANY(%s::text[]);

-- name: lock_runs
SELECT :run FROM :schema.runs AS r WHERE r.id = ANY(%s::text[]) ORDER BY r.id FOR UPDATE;

-- name: list_runs
SELECT :run FROM :schema.runs AS r
WHERE (%(after)s::bigint IS NULL OR r.number < %(after)s::bigint)
  AND (cardinality(%(states)s::text[]) = 0 OR r.state = ANY(%(states)s::text[]))
  AND (%(agent)s::text IS NULL OR r.agent = %(agent)s::text)
  AND (%(session)s::text IS NULL OR r.session = %(session)s::text)
  AND (%(labels)s::text = '{}' OR r.labels::jsonb @> %(labels)s::jsonb)
ORDER BY r.number DESC LIMIT %(limit)s;

-- name: list_children
SELECT :run FROM :schema.runs AS r
WHERE r.parent = %(parent)s::text AND (%(after)s::bigint IS NULL OR r.number < %(after)s::bigint)
  AND (cardinality(%(states)s::text[]) = 0 OR r.state = ANY(%(states)s::text[]))
  AND (%(agent)s::text IS NULL OR r.agent = %(agent)s::text)
  AND (%(session)s::text IS NULL OR r.session = %(session)s::text)
  AND (%(labels)s::text = '{}' OR r.labels::jsonb @> %(labels)s::jsonb)
ORDER BY r.number DESC LIMIT %(limit)s;

-- name: live_children
SELECT r.id, r.parent FROM :schema.runs AS r
WHERE r.parent = ANY(%s::text[]) AND r.state NOT IN ('completed', 'failed', 'cancelled') ORDER BY r.number;

-- name: runs_of_session
SELECT :run FROM :schema.runs AS r WHERE r.session = %s ORDER BY r.id FOR UPDATE;

-- name: update_run
UPDATE :schema.runs SET state = %s, paused = %s, cancelling = %s, epoch = %s, session = %s, head = %s, length = %s,
  turn = %s, turn_seq = %s, due_ms = %s, waits = %s, news = %s, deaths = %s, death_length = %s, changed_ms = %s,
  effect_length = %s, solo_deaths = %s, is_alone = %s, left_by = %s
WHERE number = %s;

-- name: append_plain
WITH given AS (
  SELECT * FROM unnest(%(runs)s::text[], %(epochs)s::bigint[], %(lengths)s::bigint[], %(heads)s::bytea[],
    %(new_lengths)s::bigint[], %(new_heads)s::bytea[], %(effects)s::bigint[])
  AS g (id, epoch, length, head, new_length, new_head, effects)),
fenced AS (
  UPDATE :schema.runs AS r SET head = g.new_head, length = g.new_length, changed_ms = coalesce(%(now)s::bigint, :now),
    effect_length = greatest(r.effect_length, g.effects)
  FROM given AS g
  WHERE r.id = g.id AND r.epoch = g.epoch AND r.length = g.length AND r.head = g.head AND r.state = 'running'
    AND (SELECT version FROM :schema.store) = %(version)s
  RETURNING r.id, r.number),
written AS (
  INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, "check")
  SELECT f.number, n.seq, n.kind, n.step, n.at_ms, n.body, n."check"
  FROM unnest(%(owners)s::text[], %(seqs)s::bigint[], %(kinds)s::text[], %(steps)s::text[], %(times)s::bigint[],
    %(bodies)s::bytea[], %(checks)s::bytea[]) AS n (owner, seq, kind, step, at_ms, body, "check")
  JOIN fenced AS f ON f.id = n.owner)
SELECT ARRAY(SELECT id FROM fenced), ARRAY(
  SELECT pg_notify(d.channel, '')::text FROM unnest(%(channels)s::text[], %(doors)s::bigint[]) AS d (channel, door)
  WHERE NOT pg_try_advisory_xact_lock(d.door));

-- name: append_end
WITH given AS (
  SELECT * FROM unnest(%(runs)s::text[], %(epochs)s::bigint[], %(lengths)s::bigint[], %(heads)s::bytea[],
    %(new_lengths)s::bigint[], %(new_heads)s::bytea[], %(effects)s::bigint[])
  AS g (id, epoch, length, head, new_length, new_head, effects)),
fenced AS (
  UPDATE :schema.runs AS r SET head = g.new_head, length = g.new_length, changed_ms = coalesce(%(now)s::bigint, :now),
    effect_length = greatest(r.effect_length, g.effects), state = 'completed', session = NULL, due_ms = NULL, waits = '',
    deaths = 0, solo_deaths = 0, is_alone = false, left_by = NULL
  FROM given AS g
  WHERE r.id = g.id AND r.epoch = g.epoch AND r.length = g.length AND r.head = g.head AND r.state = 'running'
    AND r.parent IS NULL
    AND NOT EXISTS (SELECT 1 FROM :schema.keys AS k WHERE k.run = r.id AND k.state IN ('reserved', 'in doubt'))
    AND NOT EXISTS (SELECT 1 FROM :schema.waiters AS w WHERE w.run = r.id)
    AND NOT EXISTS (SELECT 1 FROM :schema.runs AS child WHERE child.parent = r.id)
  RETURNING r.id, r.number),
written AS (
  INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, "check")
  SELECT f.number, n.seq, n.kind, n.step, n.at_ms, n.body, n."check"
  FROM unnest(%(owners)s::text[], %(seqs)s::bigint[], %(kinds)s::text[], %(steps)s::text[], %(times)s::bigint[],
    %(bodies)s::bytea[], %(checks)s::bytea[]) AS n (owner, seq, kind, step, at_ms, body, "check")
  JOIN fenced AS f ON f.id = n.owner),
closed AS (
  UPDATE :schema.items AS i SET state = 'closed' FROM fenced AS f WHERE i.run = f.id AND i.state = 'open')
SELECT ARRAY(SELECT id FROM fenced);

-- name: insert_record
INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, blobs, "check") VALUES (%s, %s, %s, %s, %s, %s, %s, %s);

-- name: read_records
SELECT :record FROM :schema.records AS c WHERE c.run = %s AND c.seq >= %s ORDER BY c.seq;

-- name: read_turns
SELECT c.run, :record
FROM unnest(%s::bigint[], %s::bigint[]) AS t (run, first) JOIN :schema.records AS c ON c.run = t.run AND c.seq >= t.first
ORDER BY c.run, c.seq;

-- name: read_checks
SELECT c.run, c."check"
FROM unnest(%s::bigint[], %s::bigint[]) AS t (run, seq) JOIN :schema.records AS c ON c.run = t.run AND c.seq = t.seq;

-- name: due_runs
WITH :levels
SELECT due.* FROM levels AS l CROSS JOIN LATERAL (
  SELECT :run FROM :schema.runs AS r
  WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = %(alone)s AND r.priority = l.priority
    AND r.due_ms <= %(now)s
    AND (r.pin IS NULL OR r.pin = %(host)s::text)
  ORDER BY r.due_ms, r.number LIMIT l.quota FOR UPDATE SKIP LOCKED) AS due
WHERE l.priority IS NOT NULL;

-- name: first_due
WITH :levels
SELECT min(due.due_ms) FROM levels AS l CROSS JOIN LATERAL (
  SELECT r.due_ms FROM :schema.runs AS r
  WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = %(alone)s AND r.priority = l.priority
    AND (r.pin IS NULL OR r.pin = %(host)s::text)
  ORDER BY r.due_ms LIMIT 1) AS due
WHERE l.priority IS NOT NULL;

-- name: family_waiting
WITH RECURSIVE family (id) AS (
  SELECT %(run)s::text COLLATE "C" UNION SELECT r.id FROM family AS f JOIN :schema.runs AS r ON r.parent = f.id)
SELECT :run FROM :schema.runs AS r WHERE r.id IN (SELECT id FROM family) AND :waiting
ORDER BY r.priority DESC, r.due_ms, r.number;

-- name: has_progressed
SELECT DISTINCT c.run FROM unnest(%s::bigint[], %s::bigint[]) AS t (run, since)
JOIN :schema.records AS c ON c.run = t.run AND c.seq >= t.since
WHERE c.kind NOT IN ('created', 'forked', 'intent', 'log', 'output', 'progress');

-- name: lock_log
SELECT length, head FROM :schema.log_head FOR UPDATE;

-- name: read_log_head
SELECT length, head FROM :schema.log_head;

-- name: write_log_head
UPDATE :schema.log_head SET length = %s, head = %s;

-- name: insert_entry
INSERT INTO :schema.log (seq, kind, run, session, at_ms, body, "check") VALUES (%s, %s, %s, %s, %s, %s, %s);

-- name: read_log
SELECT e.seq, e.kind, e.run, e.session, e.at_ms, e.body, e."check", b."check"
FROM :schema.log AS e LEFT JOIN :schema.log AS b ON b.seq = e.seq - 1 WHERE e.seq < %s ORDER BY e.seq DESC LIMIT %s;

-- name: read_log_of_run
SELECT e.seq, e.kind, e.run, e.session, e.at_ms, e.body, e."check", b."check"
FROM :schema.log AS e LEFT JOIN :schema.log AS b ON b.seq = e.seq - 1
WHERE e.run <> '' AND e.run = %s AND e.seq < %s ORDER BY e.seq DESC LIMIT %s;

-- name: all_entries
SELECT seq, kind, run, session, at_ms, body, "check" FROM :schema.log ORDER BY seq;

-- name: runs_with_news
SELECT :run FROM unnest(%s::text[], %s::bigint[]) AS seen (id, news)
JOIN :schema.runs AS r ON r.id = seen.id AND r.news <> seen.news;

-- name: insert_signal
INSERT INTO :schema.signals (run, number, name, id, body, at_ms) VALUES (%s, %s, %s, %s, %s, %s);

-- name: next_signal_number
SELECT coalesce(max(number), 0) + 1 FROM :schema.signals WHERE run = %s;

-- name: read_signal
SELECT number, name, id, body, at_ms, taken FROM :schema.signals WHERE run = %s AND id = %s;

-- name: waiting_signals
SELECT r.id, s.number, s.name, s.id, s.body, s.at_ms, s.taken
FROM :schema.runs AS r JOIN :schema.signals AS s ON s.run = r.number AND s.taken IS NULL
WHERE r.id = ANY(%s::text[]) ORDER BY s.run, s.number;

-- name: take_signal
UPDATE :schema.signals SET taken = %s WHERE run = (SELECT number FROM :schema.runs WHERE id = %s) AND number = %s;

-- name: insert_item
INSERT INTO :schema.items (id, run, kind, step, digest, body, "to", deadline_ms, opened_ms, state, answer, "by",
  answered_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: update_item
UPDATE :schema.items SET state = %s, answer = %s, "by" = %s, answered_ms = %s WHERE id = %s;

-- name: read_items
SELECT :item FROM :schema.items AS i WHERE i.id = ANY(%s::text[]);

-- name: items_of_runs
SELECT :item FROM :schema.items AS i WHERE i.run = ANY(%s::text[]) ORDER BY i.place;

-- name: open_items_of_runs
SELECT :item FROM :schema.items AS i WHERE i.run = ANY(%s::text[]) AND i.state = 'open' ORDER BY i.place;

-- name: list_inbox
SELECT :item FROM :schema.items AS i ORDER BY i.place LIMIT %s;

-- name: list_open_items
SELECT :item FROM :schema.items AS i WHERE i.state = 'open' ORDER BY i.place LIMIT %s;

-- name: read_keys
SELECT :keyrow FROM :schema.keys AS k WHERE k.key = ANY(%s::text[]);

-- name: lock_keys
SELECT :keyrow FROM :schema.keys AS k WHERE k.key = ANY(%s::text[]) ORDER BY k.key FOR UPDATE;

-- name: held_keys
SELECT k.key, k.run FROM :schema.keys AS k WHERE k.run = ANY(%s::text[]) AND k.state IN ('reserved', 'in doubt');

-- name: insert_key
INSERT INTO :schema.keys (key, action, fingerprint, run, resumable, state, generation, body, blobs, changed_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: update_key
UPDATE :schema.keys SET action = %s, fingerprint = %s, run = %s, resumable = %s, state = %s, generation = %s,
  body = %s, blobs = %s, changed_ms = %s
WHERE key = %s;

-- name: waiters_of_keys
SELECT key, run FROM :schema.waiters WHERE key = ANY(%s::text[]);

-- name: waits_of_runs
SELECT run, key FROM :schema.waiters WHERE run = ANY(%s::text[]);

-- name: add_waiter
INSERT INTO :schema.waiters (key, run) VALUES (%s, %s) ON CONFLICT DO NOTHING;

-- name: drop_waiter
DELETE FROM :schema.waiters WHERE key = %s AND run = %s;

-- name: insert_session
INSERT INTO :schema.sessions (id, host, pid, code, lease_ms, agents, keeper, started_ms, renewed_ms, renewed_boot, boot,
  locked_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, CASE WHEN %s THEN :now END);

-- name: read_sessions
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY(%s::text[]) ORDER BY s.place;

-- name: lock_sessions
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY(%s::text[]) ORDER BY s.place FOR UPDATE;

-- name: share_session
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = %s FOR SHARE;

-- name: live_sessions
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.ended_ms IS NULL ORDER BY s.place;

-- name: renew_session
UPDATE :schema.sessions SET renewed_ms = %s, renewed_boot = %s, locked_ms = CASE WHEN %s THEN :now END WHERE id = %s;

-- name: end_session
UPDATE :schema.sessions SET ended_ms = %s, cause = %s, evidence = %s WHERE id = %s;

-- name: prove_session
UPDATE :schema.sessions SET evidence = %s WHERE id = %s;

-- name: unlock_all
SELECT pg_advisory_unlock_all();

-- name: held_locks
SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: try_lock
SELECT pg_try_advisory_lock(%s);

-- name: take_lock
SELECT pg_advisory_lock(%s);

-- name: be_patient
SELECT set_config('lock_timeout', '3s', false);

-- name: await_lock
SELECT pg_advisory_lock_shared(%s);

-- name: let_go
SELECT pg_advisory_unlock_shared(%s);

-- name: open_door
SELECT pg_advisory_lock_shared(%s);

-- name: known_blobs
SELECT digest FROM :schema.blobs WHERE digest = ANY(%s::bytea[]);

-- name: touch_blobs
UPDATE :schema.blobs SET put_ms = %s WHERE digest = ANY(%s::bytea[]) AND put_ms < %s;

-- name: insert_blob
INSERT INTO :schema.blobs (digest, packed, put_ms) VALUES (%s, %s, %s) ON CONFLICT (digest) DO NOTHING;

-- name: read_blobs
SELECT digest, packed FROM :schema.blobs WHERE digest = ANY(%s::bytea[]);

-- name: refer_blob
INSERT INTO :schema.blob_runs (digest, run) VALUES (%s, %s) ON CONFLICT DO NOTHING;

-- name: count_runs
SELECT state, count(*) FROM :schema.runs GROUP BY state;

-- name: count_others
SELECT (SELECT count(*) FROM :schema.records),
       (SELECT coalesce(sum(length(body)), 0)::bigint FROM :schema.records),
       (SELECT count(*) FROM :schema.blobs),
       (SELECT coalesce(sum(length(packed)), 0)::bigint FROM :schema.blobs),
       (SELECT count(*) FROM :schema.keys),
       (SELECT count(*) FROM :schema.items WHERE state = 'open'),
       (SELECT count(*) FROM :schema.sessions WHERE ended_ms IS NULL),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
        WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s) AND c.relkind = 'r');

-- name: run_ids
SELECT id FROM :schema.runs ORDER BY number;

-- name: all_keys
SELECT :keyrow FROM :schema.keys AS k;

-- name: all_items
SELECT :item FROM :schema.items AS i;

-- name: all_signals
SELECT number, name, id, body, at_ms, taken FROM :schema.signals;

-- name: all_sessions
SELECT :session FROM :schema.sessions AS s;

-- name: blob_digests
SELECT digest FROM :schema.blobs;

-- name: stray_records
SELECT DISTINCT c.run FROM :schema.records AS c
WHERE NOT EXISTS (SELECT 1 FROM :schema.runs AS r WHERE r.number = c.run);

-- name: missing_blobs
SELECT DISTINCT r.id, b.digest FROM :schema.blob_runs AS b JOIN :schema.runs AS r ON r.number = b.run
WHERE NOT EXISTS (SELECT 1 FROM :schema.blobs WHERE blobs.digest = b.digest);

-- name: stray_keys
SELECT k.key, k.run, k.state FROM :schema.keys AS k WHERE k.state IN ('reserved', 'in doubt') AND NOT EXISTS (
  SELECT 1 FROM :schema.runs AS r WHERE r.id = k.run AND r.state NOT IN ('completed', 'failed', 'cancelled'));

-- name: ended_runs
SELECT number, id, length, head FROM :schema.runs
WHERE ended_ms IS NOT NULL AND ended_ms < %s AND NOT is_pruned ORDER BY ended_ms LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: forgettable_runs
SELECT number FROM :schema.runs
WHERE ended_ms IS NOT NULL AND ended_ms < %s AND is_pruned ORDER BY ended_ms LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: long_runs
SELECT number, base, turn_seq FROM :schema.runs
WHERE number > %s AND turn >= 2 AND state NOT IN ('completed', 'failed', 'cancelled') ORDER BY number LIMIT 100 FOR UPDATE;

-- name: previous_turn
SELECT max(seq) FROM :schema.records WHERE run = %s AND seq < %s AND kind = 'turn';

-- name: rebase_run
UPDATE :schema.runs SET base = %s, base_check = %s WHERE number = %s;

-- name: delete_records
WITH gone AS (DELETE FROM :schema.records WHERE run = %s AND seq < %s RETURNING 1) SELECT count(*) FROM gone;

-- name: cut_records
DELETE FROM :schema.records WHERE run = %s AND seq >= %s;

-- name: delete_signals
DELETE FROM :schema.signals WHERE run = %s;

-- name: delete_items
DELETE FROM :schema.items WHERE run = %s;

-- name: forget_blobs
DELETE FROM :schema.blob_runs WHERE run = %s;

-- name: bury_keys
WITH buried AS (
  UPDATE :schema.keys SET state = 'pruned', body = '', blobs = NULL, changed_ms = %s WHERE run = %s AND state = 'settled'
  RETURNING 1)
SELECT count(*) FROM buried;

-- name: forget_run
DELETE FROM :schema.runs WHERE number = %s;

-- name: sweep_blobs
WITH garbage AS (
  SELECT b.digest FROM :schema.blobs AS b
  WHERE b.put_ms < %s AND NOT EXISTS (SELECT 1 FROM :schema.blob_runs AS r WHERE r.digest = b.digest)
  LIMIT 200 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM :schema.blobs AS b USING garbage AS g WHERE b.digest = g.digest RETURNING 1)
SELECT count(*) FROM gone;
