-- Every statement of the store, by name, with the types of its values: `$1`, or `$name` where the value has a name.
-- The only other text that is inserted is `:schema`, from the URL, and the parts below.

-- part: now
(date_part('epoch', clock_timestamp()) * 1000)::bigint

-- part: run
r.id, r.number, r.agent, r.fingerprint, r.queue, r.pin, r.priority, r.labels, r.parent, r.state, r.paused, r.cancelling,
  r.epoch, r.session, r.head, r.length, r.base, r.base_check, r.turn, r.turn_seq, r.due_ms, r.waits, r.news, r.deaths,
  r.death_length, r.solo_deaths, r.is_alone, r.left_by, r.created_ms, r.changed_ms, r.effect_length, r.steps,
  r.tokens_in, r.tokens_out, r.progress, r.last_error, r.retrying

-- part: record
c.seq, c.kind, c.step, c.at_ms, c.body, c.blobs, c."check", c.step_kind, c.epoch, c.took_ms

-- part: item
i.id, i.run, i.kind, i.step, i.digest, i.body, i."to", i.deadline_ms, i.opened_ms, i.state, i.answer, i."by", i.answered_ms

-- part: keyrow
k.key, k.action, k.fingerprint, k.run, k.resumable, k.state, k.generation, k.body, k.blobs, k.changed_ms

-- part: session
s.id, s.host, s.pid, s.code, s.lease_ms, s.agents, s.keeper, s.started_ms, s.renewed_ms, s.renewed_boot, s.boot,
  s.ended_ms, s.cause, s.evidence, s.counts

-- part: waiting
r.due_ms IS NOT NULL AND NOT r.paused AND r.state IN ('pending', 'checkpointed')

-- part: levels
RECURSIVE levels AS (
  SELECT w.queue, w.agent, w.quota, (
    SELECT max(r.priority) FROM :schema.runs AS r WHERE :waiting AND r.queue = w.queue AND r.agent = w.agent
      AND (r.deaths > 1) = $solo) AS priority
  FROM unnest($queues::text[], $agents::text[], $quotas::bigint[]) AS w (queue, agent, quota)
  UNION ALL
  SELECT l.queue, l.agent, l.quota, (
    SELECT max(r.priority) FROM :schema.runs AS r
    WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = $solo
      AND r.priority < l.priority)
  FROM levels AS l WHERE l.priority IS NOT NULL)

-- part: fitting
($after::bigint IS NULL OR r.number < $after) AND ($agent::text IS NULL OR r.agent = $agent)
  AND ($session::text IS NULL OR r.session = $session) AND (cardinality($states) = 0 OR r.state = ANY($states))
  AND ($labels = '{}' OR r.labels::jsonb @> $labels::jsonb)
  AND ($changed_since_ms::bigint IS NULL OR r.changed_ms >= $changed_since_ms)

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

-- name: count_write (text)
INSERT INTO :schema.writers AS w (id, commits, touched_ms) VALUES ($1, 1, :now)
ON CONFLICT (id) DO UPDATE SET commits = w.commits + 1, touched_ms = excluded.touched_ms
RETURNING w.touched_ms, w.commits, (SELECT version FROM :schema.store), (SELECT encode(id, 'hex') FROM :schema.store);

-- name: settle_writer (text)
-- A connection's first write inserts its row, which other transactions cannot see before its COMMIT. Inserting the
-- same row waits for that; a SELECT would find nothing and return.
INSERT INTO :schema.writers AS w (id, commits, touched_ms) VALUES ($1, 0, :now)
ON CONFLICT (id) DO UPDATE SET touched_ms = excluded.touched_ms
RETURNING w.commits;

-- name: sweep_writers
DELETE FROM :schema.writers WHERE touched_ms < :now - 86400000;

-- name: wake (text[], bigint[])
SELECT pg_notify(d.channel, '') FROM unnest($1::text[], $2::bigint[]) AS d (channel, door)
WHERE NOT pg_try_advisory_xact_lock(d.door);

-- name: settings
SELECT current_setting('server_version_num')::integer, current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('synchronous_commit'), current_setting('server_encoding'), pg_is_in_recovery();

-- name: tune
-- A client that vanished in the middle of a transaction holds its locks until the server notices.
SELECT set_config('lock_timeout', '10s', false), set_config('idle_in_transaction_session_timeout', '30s', false),
  set_config('tcp_keepalives_idle', '2', false), set_config('tcp_keepalives_interval', '1', false),
  set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '5000', false),
  set_config('jit', 'off', false), set_config('timezone', 'UTC', false), set_config('enable_seqscan', 'off', false),
  set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
  set_config('plan_cache_mode', 'force_generic_plan', false);

-- name: find_store (text)
SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'store');

-- name: migration_lock (bigint)
SELECT pg_advisory_xact_lock($1);

-- name: find_schema (text)
SELECT current_database(), current_user, EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1);

-- name: create_schema
-- This needs the right to create a schema even if it exists: check `find_schema` first.
CREATE SCHEMA IF NOT EXISTS :schema;

-- name: drop_schema
DROP SCHEMA IF EXISTS :schema CASCADE;

-- name: read_store
SELECT version FROM :schema.store;

-- name: read_identity
SELECT encode(id, 'hex') FROM :schema.store;

-- name: insert_store (bytea, integer)
INSERT INTO :schema.store (one, id, version) VALUES (1, $1, $2);

-- name: insert_log_head (bytea)
INSERT INTO :schema.log_head (one, length, head) VALUES (1, 0, $1);

-- name: set_version (integer)
UPDATE :schema.store SET version = $1;

-- An append to a single run does not check the version: the owner of a run had the right one when it claimed the run,
-- and a migration fences all owners. Other writes check it when they count themselves, and wait here for a migration.

-- name: keep_writers_out
-- Appends, which do not count themselves, wait as well: their row locks would block the statements that follow.
LOCK TABLE :schema.writers, :schema.runs, :schema.records IN ACCESS EXCLUSIVE MODE;

-- name: fence_owners
UPDATE :schema.runs SET epoch = epoch + 1 WHERE state = 'running';

-- name: next_run_numbers (integer)
SELECT nextval(':schema.run_numbers') FROM generate_series(1, $1);

-- name: insert_run (text, bigint, text, bytea, text, text, bigint, text, text, text, boolean, boolean, bigint, text,
--   bytea, bigint, bigint, bytea, bigint, bigint, bigint, text, bigint, bigint, bigint, bigint, boolean, text,
--   bigint, bigint, bigint, bigint, bigint, bigint, text, text, text)
INSERT INTO :schema.runs (id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused,
  cancelling, epoch, session, head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length,
  solo_deaths, is_alone, left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress,
  last_error, retrying)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31,
  $32, $33, $34, $35, $36, $37);

-- name: read_runs (text[])
SELECT :run FROM :schema.runs AS r WHERE r.id = ANY($1::text[]);

-- name: lock_runs (text[])
SELECT :run FROM :schema.runs AS r WHERE r.id = ANY($1::text[]) ORDER BY r.id FOR UPDATE;

-- name: list_runs (after bigint, states text[], agent text, session text, labels text, changed_since_ms bigint,
--   limit bigint)
SELECT :run FROM :schema.runs AS r WHERE :fitting ORDER BY r.number DESC LIMIT $limit;

-- name: list_in_states (after bigint, states text[], agent text, session text, labels text, changed_since_ms bigint,
--   limit bigint)
SELECT r.* FROM unnest($states) AS wanted (state) CROSS JOIN LATERAL (
  SELECT :run FROM :schema.runs AS r WHERE r.state = wanted.state COLLATE "C" AND :fitting
  ORDER BY r.number DESC LIMIT $limit) AS r
ORDER BY r.number DESC LIMIT $limit;

-- name: list_ended (after bigint, states text[], agent text, session text, labels text, changed_since_ms bigint,
--   limit bigint)
SELECT :run FROM :schema.runs AS r
WHERE r.ended_ms >= $changed_since_ms AND r.is_pruned IN (false, true) AND :fitting ORDER BY r.number DESC LIMIT $limit;

-- name: list_labelled (after bigint, states text[], agent text, session text, labels text, changed_since_ms bigint,
--   limit bigint)
SELECT :run FROM :schema.runs AS r WHERE r.labels <> '{}' AND r.labels::jsonb @> $labels::jsonb AND :fitting
ORDER BY r.number DESC LIMIT $limit;

-- name: list_owned (after bigint, states text[], agent text, session text, labels text, changed_since_ms bigint,
--   limit bigint)
SELECT :run FROM :schema.runs AS r WHERE r.session = $session AND :fitting ORDER BY r.number DESC LIMIT $limit;

-- name: list_children (parent text, after bigint, states text[], agent text, session text, labels text,
--   changed_since_ms bigint, limit bigint)
SELECT :run FROM :schema.runs AS r WHERE r.parent = $parent AND :fitting ORDER BY r.number DESC LIMIT $limit;

-- name: live_children (text[])
SELECT r.id, r.parent FROM :schema.runs AS r
WHERE r.parent = ANY($1::text[]) AND r.state NOT IN ('completed', 'failed', 'cancelled') ORDER BY r.number;

-- name: runs_of_session (text)
SELECT :run FROM :schema.runs AS r WHERE r.session = $1 ORDER BY r.id FOR UPDATE;

-- name: update_run (text, boolean, boolean, bigint, text, bytea, bigint, bigint, bigint, bigint, text, bigint,
--   bigint, bigint, bigint, bigint, bigint, boolean, text, bigint, bigint, bigint, text, text, text, bigint)
UPDATE :schema.runs SET state = $1, paused = $2, cancelling = $3, epoch = $4, session = $5, head = $6, length = $7,
  turn = $8, turn_seq = $9, due_ms = $10, waits = $11, news = $12, deaths = $13, death_length = $14, changed_ms = $15,
  effect_length = $16, solo_deaths = $17, is_alone = $18, left_by = $19, steps = $20, tokens_in = $21,
  tokens_out = $22, progress = $23, last_error = $24, retrying = $25,
  ended_ms = CASE WHEN $1 IN ('completed', 'failed', 'cancelled') THEN $15 END, is_pruned = base = $7
WHERE number = $26;

-- A run's row is found by its id only, whatever the planner assumes about a new table: `IS TRUE` keeps it from scanning
-- all running runs. (And the update stays HOT: no index covers what changes.)

-- name: append_one (run text, epoch bigint, length bigint, head bytea, new_head bytea, effects bigint, now bigint,
--   kind text, step text, at_ms bigint, body bytea, step_kind text, took_ms bigint, sum_steps bigint, sum_in bigint,
--   sum_out bigint, sum_progress text, sum_error text, sum_retrying text)
WITH fenced AS (
  UPDATE :schema.runs AS r SET head = $new_head, length = $length + 1, changed_ms = coalesce($now, :now),
    effect_length = greatest(r.effect_length, $effects), steps = coalesce($sum_steps, r.steps),
    tokens_in = coalesce($sum_in, r.tokens_in), tokens_out = coalesce($sum_out, r.tokens_out),
    progress = coalesce($sum_progress, r.progress), last_error = coalesce($sum_error, r.last_error),
    retrying = coalesce($sum_retrying, r.retrying)
  WHERE r.id = $run AND r.epoch = $epoch AND r.length = $length AND r.head = $head AND (r.state = 'running') IS TRUE
  RETURNING r.number)
INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, "check", step_kind, epoch, took_ms)
SELECT f.number, $length, $kind, $step, $at_ms, $body, $new_head, $step_kind, $epoch, $took_ms FROM fenced AS f;

-- Each row is looked up separately and then updated in place, so that no plan can join a batch with the whole table. It
-- is updated only in the version that was read (xmin): a row changed meanwhile is left to the slow path.
-- Most runs append one record, which comes with the run; `owners` and what follows are for those that append more.
-- A run ends here only if its end touches no other run.

-- name: append_many (runs text[], epochs bigint[], lengths bigint[], heads bytea[], new_lengths bigint[],
--   new_heads bytea[], effects bigint[], ends boolean[], kinds text[], steps text[], times bigint[], bodies bytea[],
--   checks bytea[], step_kinds text[], took bigint[], now bigint, version integer, owners bigint[], more_seqs bigint[],
--   more_kinds text[], more_steps text[], more_times bigint[], more_bodies bytea[], more_checks bytea[],
--   more_step_kinds text[], more_took bigint[], sum_steps bigint[], sum_in bigint[], sum_out bigint[],
--   sum_progress text[], sum_error text[], sum_retrying text[], channels text[], doors bigint[], needs boolean[],
--   required text, required_version bigint)
WITH given AS (
  SELECT g.*, f.lies_at, f.version
  FROM unnest($runs, $epochs, $lengths, $heads, $new_lengths, $new_heads, $effects, $ends, $kinds, $steps, $times, $bodies,
    $checks, $step_kinds, $took, $sum_steps, $sum_in, $sum_out, $sum_progress, $sum_error, $sum_retrying,
    $needs)
    WITH ORDINALITY AS g (id, epoch, length, head, new_length, new_head, effects, is_end, kind, step, at_ms,
    body, "check", step_kind, took_ms, sum_steps, sum_in, sum_out, sum_progress, sum_error, sum_retrying, needs, place)
  CROSS JOIN LATERAL (
    SELECT r.ctid AS lies_at, r.xmin AS version FROM :schema.runs AS r
    WHERE r.id = g.id AND r.epoch = g.epoch AND r.length = g.length AND r.head = g.head AND (r.state = 'running') IS TRUE
      AND NOT (g.is_end AND (r.parent IS NOT NULL
        OR EXISTS (SELECT 1 FROM :schema.keys AS k WHERE k.run = r.id AND k.state IN ('reserved', 'in doubt'))
        OR EXISTS (SELECT 1 FROM :schema.waiters AS w WHERE w.run = r.id)
        OR EXISTS (SELECT 1 FROM :schema.runs AS child WHERE child.parent = r.id)))
    LIMIT 1) AS f
  WHERE (SELECT version FROM :schema.store) = $version
    -- Its lock was taken by the statement before: this one sees the version that counts.
    AND (g.needs IS NOT TRUE OR $required_version = coalesce(
      (SELECT d.version FROM :schema.documents AS d WHERE d.name = $required), 0))),
fenced AS (
  UPDATE :schema.runs AS r SET head = g.new_head, length = g.new_length, changed_ms = coalesce($now, :now),
    effect_length = greatest(r.effect_length, g.effects), steps = coalesce(g.sum_steps, r.steps),
    tokens_in = coalesce(g.sum_in, r.tokens_in), tokens_out = coalesce(g.sum_out, r.tokens_out),
    progress = coalesce(g.sum_progress, r.progress), last_error = coalesce(g.sum_error, r.last_error),
    retrying = coalesce(g.sum_retrying, r.retrying),
    state = CASE WHEN g.is_end THEN 'completed' ELSE r.state END,
    session = CASE WHEN NOT g.is_end THEN r.session END,
    due_ms = CASE WHEN NOT g.is_end THEN r.due_ms END,
    waits = CASE WHEN g.is_end THEN '' ELSE r.waits END,
    deaths = CASE WHEN g.is_end THEN 0 ELSE r.deaths END,
    solo_deaths = CASE WHEN g.is_end THEN 0 ELSE r.solo_deaths END,
    is_alone = r.is_alone AND NOT g.is_end,
    left_by = CASE WHEN NOT g.is_end THEN r.left_by END,
    ended_ms = CASE WHEN g.is_end THEN coalesce($now, :now) END,
    is_pruned = r.is_pruned AND NOT g.is_end
  FROM given AS g WHERE r.ctid = g.lies_at AND r.xmin = g.version
  RETURNING r.number, r.id, g.place, g.is_end, g.length AS seq, g.kind, g.step, g.at_ms, g.body, g."check",
    g.step_kind, g.epoch, g.took_ms),
written AS (
  INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, "check", step_kind, epoch, took_ms)
  SELECT f.number, f.seq, f.kind, f.step, f.at_ms, f.body, f."check", f.step_kind, f.epoch, f.took_ms FROM fenced AS f
  UNION ALL
  SELECT f.number, n.seq, n.kind, n.step, n.at_ms, n.body, n."check", n.step_kind, f.epoch, n.took_ms
  FROM unnest($owners, $more_seqs, $more_kinds, $more_steps, $more_times, $more_bodies, $more_checks, $more_step_kinds,
    $more_took) AS n (owner, seq, kind, step, at_ms, body, "check", step_kind, took_ms)
  JOIN fenced AS f ON f.place = n.owner),
closed AS (
  UPDATE :schema.items AS i SET state = 'closed' WHERE i.ctid = ANY(ARRAY(
    SELECT o.lies_at FROM fenced AS f CROSS JOIN LATERAL (
      SELECT i.ctid AS lies_at FROM :schema.items AS i WHERE i.run = f.id AND (i.state = 'open') IS TRUE OFFSET 0) AS o
    WHERE f.is_end)))
SELECT ARRAY(SELECT place FROM fenced), ARRAY(
  SELECT pg_notify(d.channel, '')::text FROM unnest($channels, $doors) AS d (channel, door)
  WHERE NOT pg_try_advisory_xact_lock(d.door));

-- name: insert_record (bigint, bigint, text, text, bigint, bytea, bytea, bytea, text, bigint, bigint)
INSERT INTO :schema.records (run, seq, kind, step, at_ms, body, blobs, "check", step_kind, epoch, took_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: read_records (bigint, bigint)
SELECT :record FROM :schema.records AS c WHERE c.run = $1 AND c.seq >= $2 ORDER BY c.seq;

-- name: read_turns (bigint[], bigint[])
SELECT c.run, :record
FROM unnest($1::bigint[], $2::bigint[]) AS t (run, first) JOIN :schema.records AS c ON c.run = t.run AND c.seq >= t.first
ORDER BY c.run, c.seq;

-- name: read_checks (bigint[], bigint[])
SELECT c.run, c."check"
FROM unnest($1::bigint[], $2::bigint[]) AS t (run, seq) JOIN :schema.records AS c ON c.run = t.run AND c.seq = t.seq;

-- name: due_runs (solo boolean, queues text[], agents text[], quotas bigint[], now bigint, host text)
WITH :levels
SELECT due.* FROM levels AS l CROSS JOIN LATERAL (
  SELECT :run FROM :schema.runs AS r
  WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = $solo AND r.priority = l.priority
    AND r.due_ms <= $now
    AND (r.pin IS NULL OR r.pin = $host::text)
  ORDER BY r.due_ms, r.number LIMIT l.quota FOR UPDATE SKIP LOCKED) AS due
WHERE l.priority IS NOT NULL;

-- name: first_due (solo boolean, queues text[], agents text[], quotas bigint[], host text)
WITH :levels
SELECT min(due.due_ms) FROM levels AS l CROSS JOIN LATERAL (
  SELECT r.due_ms FROM :schema.runs AS r
  WHERE :waiting AND r.queue = l.queue AND r.agent = l.agent AND (r.deaths > 1) = $solo AND r.priority = l.priority
    AND (r.pin IS NULL OR r.pin = $host::text)
  ORDER BY r.due_ms LIMIT 1) AS due
WHERE l.priority IS NOT NULL;

-- name: lock_family (run text)
WITH RECURSIVE family (id) AS (
  SELECT $run::text COLLATE "C" UNION SELECT r.id FROM family AS f JOIN :schema.runs AS r ON r.parent = f.id)
SELECT r.* FROM (SELECT f.id FROM family AS f ORDER BY f.id) AS f CROSS JOIN LATERAL (
  SELECT :run FROM :schema.runs AS r WHERE r.id = f.id AND (:waiting) IS TRUE FOR UPDATE) AS r;

-- name: has_progressed (bigint[], bigint[])
SELECT DISTINCT c.run FROM unnest($1::bigint[], $2::bigint[]) AS t (run, since)
JOIN :schema.records AS c ON c.run = t.run AND c.seq >= t.since
WHERE c.kind NOT IN ('created', 'forked', 'intent', 'log', 'output', 'progress');

-- name: lock_log
SELECT length, head FROM :schema.log_head FOR UPDATE;

-- name: read_log_head
SELECT length, head FROM :schema.log_head;

-- name: write_log_head (bigint, bytea)
UPDATE :schema.log_head SET length = $1, head = $2;

-- name: insert_entry (bigint, text, text, text, bigint, bytea, bytea)
INSERT INTO :schema.log (seq, kind, run, session, at_ms, body, "check") VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: read_log (bigint, bigint)
SELECT e.seq, e.kind, e.run, e.session, e.at_ms, e.body, e."check", coalesce(b."check", h.base_check)
FROM :schema.log AS e LEFT JOIN :schema.log AS b ON b.seq = e.seq - 1 LEFT JOIN :schema.log_head AS h ON h.base = e.seq WHERE e.seq < $1 ORDER BY e.seq DESC LIMIT $2;

-- name: read_log_of_run (text, bigint, bigint)
SELECT e.seq, e.kind, e.run, e.session, e.at_ms, e.body, e."check", coalesce(b."check", h.base_check)
FROM :schema.log AS e LEFT JOIN :schema.log AS b ON b.seq = e.seq - 1 LEFT JOIN :schema.log_head AS h ON h.base = e.seq
WHERE e.run <> '' AND e.run = $1 AND e.seq < $2 ORDER BY e.seq DESC LIMIT $3;

-- name: all_entries
SELECT seq, kind, run, session, at_ms, body, "check" FROM :schema.log ORDER BY seq;

-- name: runs_with_news (text[], bigint[])
SELECT :run FROM unnest($1::text[], $2::bigint[]) AS seen (id, news)
JOIN :schema.runs AS r ON r.id = seen.id AND r.news <> seen.news;

-- name: insert_signal (bigint, bigint, text, text, bytea, bigint)
INSERT INTO :schema.signals (run, number, name, id, body, at_ms) VALUES ($1, $2, $3, $4, $5, $6);

-- name: next_signal_number (bigint)
SELECT coalesce(max(number), 0) + 1 FROM :schema.signals WHERE run = $1;

-- name: read_signal (bigint, text)
SELECT number, name, id, body, at_ms, taken FROM :schema.signals WHERE run = $1 AND id = $2;

-- name: waiting_signals (text[])
SELECT r.id, s.number, s.name, s.id, s.body, s.at_ms, s.taken
FROM :schema.runs AS r JOIN :schema.signals AS s ON s.run = r.number AND s.taken IS NULL
WHERE r.id = ANY($1::text[]) ORDER BY s.run, s.number;

-- name: signals_of_run (bigint)
SELECT s.number, s.name, s.id, s.body, s.at_ms, s.taken FROM :schema.signals AS s WHERE s.run = $1 ORDER BY s.number;

-- name: take_signal (bigint, text, bigint)
UPDATE :schema.signals SET taken = $1 WHERE run = (SELECT number FROM :schema.runs WHERE id = $2) AND number = $3;

-- name: insert_item (text, text, text, text, bytea, bytea, text, bigint, bigint, text, bytea, text, bigint)
INSERT INTO :schema.items (id, run, kind, step, digest, body, "to", deadline_ms, opened_ms, state, answer, "by",
  answered_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: update_item (text, bytea, text, bigint, text)
UPDATE :schema.items SET state = $1, answer = $2, "by" = $3, answered_ms = $4 WHERE id = $5;

-- name: read_items (text[])
SELECT :item FROM :schema.items AS i WHERE i.id = ANY($1::text[]);

-- name: items_of_runs (text[])
SELECT :item FROM :schema.items AS i WHERE i.run = ANY($1::text[]) ORDER BY i.place;

-- name: open_items_of_runs (text[])
SELECT :item FROM :schema.items AS i WHERE i.run = ANY($1::text[]) AND i.state = 'open' ORDER BY i.place;

-- name: list_inbox (bigint)
SELECT :item FROM :schema.items AS i ORDER BY i.place LIMIT $1;

-- name: list_open_items (bigint)
SELECT :item FROM :schema.items AS i WHERE i.state = 'open' ORDER BY i.place LIMIT $1;

-- name: read_keys (text[])
SELECT :keyrow FROM :schema.keys AS k WHERE k.key = ANY($1::text[]);

-- name: lock_keys (text[])
SELECT :keyrow FROM :schema.keys AS k WHERE k.key = ANY($1::text[]) ORDER BY k.key FOR UPDATE;

-- name: held_keys (text[])
SELECT k.key, k.run FROM :schema.keys AS k WHERE k.run = ANY($1::text[]) AND k.state IN ('reserved', 'in doubt');

-- name: keys_of_run (text)
SELECT :keyrow FROM :schema.keys AS k WHERE k.run = $1 ORDER BY k.key;

-- name: insert_key (text, text, bytea, text, boolean, text, bigint, bytea, bytea, bigint)
INSERT INTO :schema.keys (key, action, fingerprint, run, resumable, state, generation, body, blobs, changed_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: update_key (text, bytea, text, boolean, text, bigint, bytea, bytea, bigint, text)
UPDATE :schema.keys SET action = $1, fingerprint = $2, run = $3, resumable = $4, state = $5, generation = $6,
  body = $7, blobs = $8, changed_ms = $9
WHERE key = $10;

-- name: waiters_of_keys (text[])
SELECT key, run FROM :schema.waiters WHERE key = ANY($1::text[]);

-- name: waits_of_runs (text[])
SELECT run, key FROM :schema.waiters WHERE run = ANY($1::text[]);

-- name: add_waiter (text, text)
INSERT INTO :schema.waiters (key, run) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: drop_waiter (text, text)
DELETE FROM :schema.waiters WHERE key = $1 AND run = $2;

-- name: insert_session (text, text, bigint, text, bigint, text, text, bigint, bigint, bigint, text, boolean)
INSERT INTO :schema.sessions (id, host, pid, code, lease_ms, agents, keeper, started_ms, renewed_ms, renewed_boot, boot,
  locked_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, CASE WHEN $12 THEN :now END);

-- name: read_sessions (text[])
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY($1::text[]) ORDER BY s.place;

-- name: lock_sessions (text[])
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY($1::text[]) ORDER BY s.place FOR UPDATE;

-- name: lock_gone_sessions (text[])
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY($1::text[]) ORDER BY s.place FOR UPDATE SKIP LOCKED;

-- name: share_sessions (text[])
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.id = ANY($1::text[]) FOR SHARE;

-- name: live_sessions
SELECT :session, s.locked_ms > extract(epoch FROM pg_postmaster_start_time()) * 1000
FROM :schema.sessions AS s WHERE s.ended_ms IS NULL ORDER BY s.place;

-- name: renew_session (bigint, bigint, boolean, text, text)
UPDATE :schema.sessions SET renewed_ms = $1, renewed_boot = $2, locked_ms = CASE WHEN $3 THEN :now END,
  counts = CASE WHEN $5 = '' THEN counts ELSE $5 END
WHERE id = $4;

-- name: end_session (bigint, text, bytea, text)
UPDATE :schema.sessions SET ended_ms = $1, cause = $2, evidence = $3, counts = '' WHERE id = $4;

-- name: prove_session (bytea, text)
UPDATE :schema.sessions SET evidence = $1 WHERE id = $2;

-- name: unlock_all
SELECT pg_advisory_unlock_all();

-- name: held_locks
SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: bear_silence
SELECT set_config('tcp_keepalives_idle', '0', false), set_config('tcp_user_timeout', '0', false);

-- name: try_lock (bigint)
SELECT pg_try_advisory_lock($1);

-- name: take_lock (bigint)
SELECT pg_advisory_lock($1);

-- name: be_patient
SELECT set_config('lock_timeout', '1s', false);

-- name: await_lock (bigint)
SELECT pg_advisory_lock_shared($1);

-- name: let_go (bigint)
SELECT pg_advisory_unlock_shared($1);

-- name: open_door (bigint)
SELECT pg_advisory_lock_shared($1);

-- name: known_blobs (bytea[])
SELECT digest FROM :schema.blobs WHERE digest = ANY($1::bytea[]);

-- name: touch_blobs (bigint, bytea[], bigint)
UPDATE :schema.blobs SET put_ms = $1 WHERE digest = ANY($2::bytea[]) AND put_ms < $3;

-- name: insert_blob (bytea, bytea, bigint)
INSERT INTO :schema.blobs (digest, packed, put_ms) VALUES ($1, $2, $3) ON CONFLICT (digest) DO NOTHING;

-- name: read_blobs (bytea[])
SELECT digest, packed FROM :schema.blobs WHERE digest = ANY($1::bytea[]);

-- name: refer_blob (bytea, bigint)
INSERT INTO :schema.blob_runs (digest, run) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: count_runs
SELECT state, count(*) FROM :schema.runs GROUP BY state;

-- name: count_others (text)
SELECT (SELECT count(*) FROM :schema.records),
       (SELECT coalesce(sum(length(body)), 0)::bigint FROM :schema.records),
       (SELECT count(*) FROM :schema.blobs),
       (SELECT coalesce(sum(length(packed)), 0)::bigint FROM :schema.blobs),
       (SELECT count(*) FROM :schema.keys),
       (SELECT count(*) FROM :schema.items WHERE state = 'open'),
       (SELECT count(*) FROM :schema.sessions WHERE ended_ms IS NULL),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
        WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r');

-- name: runs_between (bigint, bigint, bigint)
SELECT number, id FROM :schema.runs WHERE number > $1 AND number <= $2 ORDER BY number LIMIT $3;

-- name: last_run
SELECT coalesce(max(number), 0) FROM :schema.runs;

-- name: all_keys (text, bigint)
SELECT :keyrow FROM :schema.keys AS k WHERE k.key > $1 ORDER BY k.key LIMIT $2;

-- name: all_items (text, bigint)
SELECT :item FROM :schema.items AS i WHERE i.id > $1 ORDER BY i.id LIMIT $2;

-- name: all_signals (bigint, bigint, bigint)
SELECT number, name, id, body, at_ms, taken, run FROM :schema.signals
WHERE (run, number) > ($1, $2) ORDER BY run, number LIMIT $3;

-- name: all_sessions (text, bigint)
SELECT :session FROM :schema.sessions AS s WHERE s.id > $1 ORDER BY s.id LIMIT $2;

-- name: signal_numbers (bigint)
SELECT number, taken FROM :schema.signals WHERE run = $1;

-- name: item_states (text)
SELECT id, state FROM :schema.items WHERE run = $1;

-- name: known_sessions (text[])
SELECT id FROM :schema.sessions WHERE id = ANY($1::text[]);

-- name: blob_digests (bytea, bigint)
SELECT digest FROM :schema.blobs WHERE digest > $1 ORDER BY digest LIMIT $2;

-- name: last_recorded
SELECT coalesce(max(run), 0) FROM :schema.records;

-- name: stray_records (bigint, bigint)
-- Jumps from one run to the next: reading every record would take as long as the journals.
WITH RECURSIVE found (run) AS (
  SELECT min(c.run) FROM :schema.records AS c WHERE c.run > $1
  UNION ALL
  SELECT (SELECT min(c.run) FROM :schema.records AS c WHERE c.run > found.run) FROM found WHERE found.run IS NOT NULL)
SELECT run, NOT EXISTS (SELECT 1 FROM :schema.runs AS r WHERE r.number = found.run) FROM found
WHERE run IS NOT NULL LIMIT $2;

-- name: blob_references (bytea, bigint, bigint)
SELECT b.digest, b.run, r.id, EXISTS (SELECT 1 FROM :schema.blobs WHERE blobs.digest = b.digest)
FROM :schema.blob_runs AS b LEFT JOIN :schema.runs AS r ON r.number = b.run
WHERE (b.digest, b.run) > ($1, $2) ORDER BY b.digest, b.run LIMIT $3;

-- name: stray_keys (text, text)
SELECT k.key, k.run, k.state FROM :schema.keys AS k WHERE k.key > $1 AND k.key <= $2 AND k.state IN ('reserved', 'in doubt') AND NOT EXISTS (
  SELECT 1 FROM :schema.runs AS r WHERE r.id = k.run AND r.state NOT IN ('completed', 'failed', 'cancelled'));

-- name: ended_runs (bigint, text, bigint)
SELECT number, id, length, head FROM :schema.runs
WHERE ended_ms IS NOT NULL AND ended_ms < $1 AND NOT is_pruned AND ended_ms < coalesce(($2::jsonb ->> agent)::bigint, $3)
ORDER BY ended_ms LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: forgettable_runs (bigint)
SELECT number, agent, state FROM :schema.runs
WHERE ended_ms IS NOT NULL AND ended_ms < $1 AND is_pruned ORDER BY ended_ms LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: long_runs (bigint)
SELECT number, id, base, turn_seq FROM :schema.runs
WHERE number > $1 AND turn >= 2 AND state NOT IN ('completed', 'failed', 'cancelled') ORDER BY number
LIMIT 20 FOR UPDATE SKIP LOCKED;  -- these runs are active: neither wait for them nor make many wait for us

-- name: previous_turn (bigint, bigint)
SELECT max(seq) FROM :schema.records WHERE run = $1 AND seq < $2 AND kind = 'turn';

-- name: rebase_run (bigint, bytea, bigint)
UPDATE :schema.runs SET base = $1, base_check = $2, is_pruned = $1 = length WHERE number = $3;

-- name: delete_records (bigint, bigint)
WITH gone AS (DELETE FROM :schema.records WHERE run = $1 AND seq < $2 RETURNING 1) SELECT count(*) FROM gone;

-- name: cut_records (bigint, bigint)
DELETE FROM :schema.records WHERE run = $1 AND seq >= $2;

-- name: delete_signals (bigint)
DELETE FROM :schema.signals WHERE run = $1;

-- name: delete_items (text)
DELETE FROM :schema.items WHERE run = $1;

-- name: forget_blobs (bigint)
DELETE FROM :schema.blob_runs WHERE run = $1;

-- name: bury_keys (text)
WITH buried AS (
  UPDATE :schema.keys SET state = 'pruned', body = '', blobs = NULL WHERE run = $1 AND state = 'settled'
  RETURNING 1)
SELECT count(*) FROM buried;

-- name: forget_run (bigint)
DELETE FROM :schema.runs WHERE number = $1;

-- name: blobs_of_run (bigint)
SELECT digest FROM :schema.blob_runs WHERE run = $1;

-- name: has_old_blob (bigint)
SELECT 1 FROM :schema.blobs AS b
WHERE b.put_ms < $1 AND NOT EXISTS (SELECT 1 FROM :schema.blob_runs AS r WHERE r.digest = b.digest) LIMIT 1;

-- name: lost_references (integer)
-- What journals and keys refer to without a row that keeps it. Reads every record: ask when there is something to sweep.
WITH holder (run, blobs) AS (
  SELECT c.run, c.blobs FROM :schema.records AS c WHERE c.blobs IS NOT NULL
  UNION ALL
  SELECT r.number, k.blobs FROM :schema.keys AS k JOIN :schema.runs AS r ON r.id = k.run WHERE k.blobs IS NOT NULL),
needed (run, digest) AS (
  SELECT h.run, substring(h.blobs FROM at.place FOR $1)
  FROM holder AS h CROSS JOIN LATERAL generate_series(1, length(h.blobs), $1) AS at (place))
SELECT DISTINCT n.digest FROM needed AS n
WHERE NOT EXISTS (SELECT 1 FROM :schema.blob_runs AS b WHERE b.digest = n.digest AND b.run = n.run);

-- name: sweep_blobs (bigint, bytea[])
WITH garbage AS (
  SELECT b.digest FROM :schema.blobs AS b
  WHERE b.put_ms < $1 AND NOT EXISTS (SELECT 1 FROM :schema.blob_runs AS r WHERE r.digest = b.digest)
    AND b.digest <> ALL ($2::bytea[])
  LIMIT 200 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM :schema.blobs AS b USING garbage AS g WHERE b.digest = g.digest RETURNING 1)
SELECT count(*) FROM gone;

-- A document is locked by its name, so that one that does not exist can be locked too. Such a lock is fair: a steady
-- stream of commits that share it does not keep a writer waiting. Statements that follow see what its last holder wrote.

-- name: lock_documents (text[], boolean[])
SELECT CASE WHEN d.is_alone THEN pg_advisory_xact_lock(d.door) ELSE pg_advisory_xact_lock_shared(d.door) END
FROM (SELECT g.is_alone, hashtextextended(':schema document ' || g.name, 0) AS door
      FROM unnest($1, $2) AS g (name, is_alone)) AS d;

-- name: find_documents (text[])
SELECT d.name, d.version, d.body, d.changed_ms FROM :schema.documents AS d WHERE d.name = ANY($1::text[]);

-- name: document_version (text)
SELECT d.version FROM :schema.documents AS d WHERE d.name = $1;

-- name: read_document (text)
SELECT d.name, d.version, d.body, d.changed_ms FROM :schema.documents AS d WHERE d.name = $1 FOR UPDATE;

-- name: list_documents (text, text, text, bigint)
SELECT d.name, d.version, d.body, d.changed_ms FROM :schema.documents AS d
WHERE d.name > $1 AND d.name >= $2 AND d.name < $3 ORDER BY d.name LIMIT $4;

-- name: insert_document (text, bigint, bytea, bigint)
INSERT INTO :schema.documents (name, version, body, changed_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO NOTHING RETURNING 1;

-- name: insert_account (text, bigint, bytea, bigint)
INSERT INTO :schema.documents (name, version, body, changed_ms) VALUES ($1, $2, $3, $4);

-- name: update_document (text, bigint, bytea, bigint)
UPDATE :schema.documents SET version = $2, body = $3, changed_ms = $4 WHERE name = $1 RETURNING 1;

-- name: delete_document (text)
DELETE FROM :schema.documents WHERE name = $1;

-- name: all_documents (text, bigint)
SELECT d.name, d.version, d.body, d.changed_ms FROM :schema.documents AS d WHERE d.name > $1 ORDER BY d.name LIMIT $2;

-- name: gauge_runs
SELECT agent, queue, state, count(*), count(*) FILTER (WHERE paused),
  min(due_ms) FILTER (WHERE NOT paused AND state IN ('pending', 'checkpointed'))
FROM :schema.runs WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') GROUP BY agent, queue, state;

-- name: gauge_held
SELECT r.session, agent, count(*) FROM :schema.runs AS r WHERE r.session IS NOT NULL GROUP BY r.session, agent;

-- name: gauge_left
SELECT r.agent, count(*), min(s.ended_ms) FROM :schema.runs AS r JOIN :schema.sessions AS s ON s.id = r.left_by
WHERE r.state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') AND r.left_by IS NOT NULL AND NOT r.paused
  AND (r.session IS NULL OR r.length <= r.death_length) AND s.cause <> 'stopped'
GROUP BY r.agent;

-- name: gauge_retrying
-- No cast to json: a damaged row must not hide the others.
SELECT agent, coalesce(substring(retrying from '"reason":"([a-z_]*)"'), '') AS reason, count(*) FROM :schema.runs
WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') AND retrying <> '' GROUP BY agent, 2;

-- name: gauge_items
SELECT r.agent, i.kind, i.step, count(*), min(i.opened_ms) FROM :schema.items AS i JOIN :schema.runs AS r ON r.id = i.run
WHERE i.state = 'open' GROUP BY r.agent, i.kind, i.step;

-- name: gauge_used
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class AS c
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = ':schema.runs'::regclass) AND c.relkind = 'r';

-- name: add_count (text, text, bigint)
INSERT INTO :schema.counters AS c (name, labels, value) VALUES ($1, $2, $3)
ON CONFLICT (name, labels) DO UPDATE SET value = c.value + excluded.value;

-- name: all_counters
SELECT name, labels, value FROM :schema.counters;

-- name: live_counts
SELECT counts FROM :schema.sessions WHERE ended_ms IS NULL;

-- name: count_runs_by_agent
SELECT agent, queue, state, count(*) FROM :schema.runs WHERE ended_ms IS NOT NULL GROUP BY agent, queue, state
UNION ALL
SELECT agent, queue, state, count(*) FROM :schema.runs WHERE ended_ms IS NULL AND state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved')
GROUP BY agent, queue, state;

-- name: read_horizon
SELECT encode(s.id, 'hex'), txid_snapshot_xmin(txid_current_snapshot()), txid_snapshot_xmax(txid_current_snapshot())
FROM :schema.store AS s;

-- name: mark_runs (bigint, bigint)
SELECT r.number, r.id, r.state, r.length, r.head, r.created_ms, r.xmin::text FROM :schema.runs AS r
WHERE r.number > $1 ORDER BY r.number LIMIT $2;

-- name: mark_unfinished
SELECT r.id, r.state, r.length, r.head, r.created_ms, r.xmin::text FROM :schema.runs AS r
WHERE r.state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved');

-- name: mark_ended (bigint)
SELECT r.id, r.state, r.length, r.head, r.created_ms, r.xmin::text FROM :schema.runs AS r
WHERE r.ended_ms >= $1 AND r.is_pruned IN (false, true);

-- name: list_keys (text, bigint)
SELECT :keyrow FROM :schema.keys AS k WHERE k.key > $1 ORDER BY k.key LIMIT $2;

-- name: read_log_base
SELECT base, base_check FROM :schema.log_head;

-- name: oldest_entries (bigint)
SELECT seq, kind, run, session, at_ms, body, "check" FROM :schema.log ORDER BY seq LIMIT $1;

-- name: cut_log (bigint)
DELETE FROM :schema.log WHERE seq < $1;

-- name: write_log_base (bigint, bytea)
UPDATE :schema.log_head SET base = $1, base_check = $2;

-- name: drop_sessions (bigint, bigint)
WITH old AS (
  SELECT s.place FROM :schema.sessions AS s
  WHERE s.ended_ms < $1 AND NOT (s.cause = 'expired' AND s.evidence IS NULL)
    AND NOT EXISTS (SELECT 1 FROM :schema.runs AS r WHERE r.left_by = s.id)
  ORDER BY s.place LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM :schema.sessions AS s USING old WHERE s.place = old.place RETURNING 1)
SELECT count(*) FROM gone;

-- name: our_tables (text)
SELECT c.oid::regclass::text FROM pg_class AS c
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r' ORDER BY c.relname;

-- name: used_bytes (text)
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r';
