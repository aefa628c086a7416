-- Every statement of the store, by name. Ids and values are always bound. `@table` stands for the list of the columns
-- that a row's check covers (queries.py).

-- name: count_commit
UPDATE store SET commits = commits + 1, "check" = resealed('store', "check", @store, @store(commits = commits + 1))
WHERE one = 1 AND version = ? RETURNING @store, "check";

-- name: count_known
UPDATE store SET commits = ?1, "check" = ?2 WHERE one = 1 AND version = ?3 AND "check" = ?4 RETURNING 1;

-- name: read_store
SELECT @store, "check" FROM store WHERE one = 1;

-- name: next_run_numbers
UPDATE store SET runs = runs + ?1, "check" = resealed('store', "check", @store, @store(runs = runs + ?1))
WHERE one = 1 RETURNING runs - ?1 + 1;

-- name: set_version
UPDATE store SET version = ?1, "check" = resealed('store', "check", @store, @store(version = ?1)) WHERE one = 1;

-- name: set_store_id
UPDATE store SET id = ?1, "check" = resealed('store', "check", @store, @store(id = ?1)) WHERE one = 1;

-- name: insert_store
INSERT INTO store (id, version, commits, runs, log_length, log_head, "check")
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_run
INSERT INTO runs (id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling,
  epoch, session, head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length,
  solo_deaths, is_alone, left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress,
  last_error, retrying, "check", hot)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_run
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs WHERE id = ?;

-- name: read_runs
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs WHERE id IN (SELECT value FROM json_each(?));

-- name: run_ids_again
SELECT id FROM runs INDEXED BY runs_again WHERE id IN (SELECT value FROM json_each(?));

-- name: list_runs
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs
WHERE (:after IS NULL OR number < :after)
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:agent IS NULL OR agent = :agent)
  AND (:session IS NULL OR session = :session)
  AND (:changed_since_ms IS NULL OR changed_ms >= :changed_since_ms)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS wanted
    WHERE NOT EXISTS (
      SELECT 1 FROM json_each(runs.labels) AS found WHERE found.key = wanted.key AND found.value = wanted.value))
ORDER BY number DESC LIMIT :limit;

-- name: list_ended
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs INDEXED BY runs_ended
WHERE (base = length) IN (0, 1) AND changed_ms >= :changed_since_ms
  AND (state = 'completed' OR state = 'failed' OR state = 'cancelled')
  AND state IN (SELECT value FROM json_each(:states))
  AND (:after IS NULL OR number < :after)
  AND (:agent IS NULL OR agent = :agent)
ORDER BY number DESC LIMIT :limit;

-- name: list_labelled
SELECT runs.id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch,
  session, head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths,
  is_alone, left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying,
  runs."check", hot
FROM labels AS label CROSS JOIN runs ON runs.number = label.run
WHERE label.name = :label AND label.value = :value
  AND (:after IS NULL OR label.run < :after)
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:agent IS NULL OR agent = :agent)
  AND (:session IS NULL OR session = :session)
  AND (:changed_since_ms IS NULL OR changed_ms >= :changed_since_ms)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS wanted
    WHERE NOT EXISTS (
      SELECT 1 FROM json_each(runs.labels) AS found WHERE found.key = wanted.key AND found.value = wanted.value))
ORDER BY label.run DESC LIMIT :limit;

-- name: insert_labels
INSERT INTO labels (name, value, run, "check")
SELECT key, value, ?2, sealed('labels', key, value, ?2) FROM json_each(?1);

-- name: all_labels
SELECT @labels, "check" FROM labels WHERE (name, value, run) > (?1, ?2, ?3) ORDER BY name, value, run LIMIT ?4;

-- name: delete_labels
DELETE FROM labels WHERE run = ?2 AND (name, value) IN (SELECT key, value FROM json_each(?1));

-- name: stray_labels
-- A row whose labels are not valid JSON is reported with the run itself.
SELECT DISTINCT run FROM labels WHERE NOT EXISTS (
  SELECT 1 FROM runs WHERE runs.number = labels.run AND NOT json_valid(runs.labels)
  UNION ALL
  SELECT 1 FROM runs CROSS JOIN json_each(CASE WHEN json_valid(runs.labels) THEN runs.labels ELSE '{}' END) AS label
  WHERE runs.number = labels.run AND label.key = labels.name AND label.value = labels.value)
UNION
SELECT number FROM runs CROSS JOIN json_each(CASE WHEN json_valid(runs.labels) THEN runs.labels ELSE '{}' END) AS label
WHERE NOT EXISTS (
  SELECT 1 FROM labels WHERE labels.name = label.key AND labels.value = label.value AND labels.run = runs.number);

-- name: family_waiting
WITH RECURSIVE family (id) AS (
  SELECT ?1 UNION SELECT runs.id FROM family CROSS JOIN runs INDEXED BY runs_parent ON runs.parent = family.id)
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs WHERE id IN (SELECT id FROM family)
  AND state IN ('pending', 'checkpointed') AND paused = 0 AND due_ms IS NOT NULL
ORDER BY priority DESC, due_ms, number;

-- name: list_children
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs
WHERE parent = :parent AND (:after IS NULL OR number < :after)
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:agent IS NULL OR agent = :agent)
  AND (:session IS NULL OR session = :session)
  AND (:changed_since_ms IS NULL OR changed_ms >= :changed_since_ms)
  AND NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS wanted
    WHERE NOT EXISTS (
      SELECT 1 FROM json_each(runs.labels) AS found WHERE found.key = wanted.key AND found.value = wanted.value))
ORDER BY number DESC LIMIT :limit;

-- name: live_children
SELECT id FROM runs WHERE parent = ? AND state NOT IN ('completed', 'failed', 'cancelled') ORDER BY number;

-- name: runs_of_session
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs WHERE session = ?1 AND number NOT IN (SELECT value FROM json_each(?2)) ORDER BY number;

-- name: waiting_numbers
SELECT number FROM runs
WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed') AND queue = ? AND agent = ?;

-- name: numbers_of_session
SELECT number FROM runs WHERE session = ?;

-- name: read_run_by_number
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs WHERE number = ?;

-- name: update_run
WITH new (number, state, paused, cancelling, epoch, session, head, length, turn, turn_seq, due_ms, waits, news,
  deaths, death_length, changed_ms, effect_length, solo_deaths, is_alone, left_by, steps, tokens_in, tokens_out,
  progress, last_error, retrying, "check", hot)
  AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
UPDATE runs SET state = new.state, paused = new.paused, cancelling = new.cancelling, epoch = new.epoch, session =
  new.session, head = new.head, length = new.length, turn = new.turn, turn_seq = new.turn_seq, due_ms = new.due_ms,
  waits = new.waits, news = new.news, deaths = new.deaths, death_length = new.death_length, changed_ms =
  new.changed_ms, effect_length = new.effect_length, solo_deaths = new.solo_deaths, is_alone = new.is_alone, left_by =
  new.left_by, steps = new.steps, tokens_in = new.tokens_in, tokens_out = new.tokens_out, progress = new.progress,
  last_error = new.last_error, retrying = new.retrying, "check" = new."check", hot = new.hot
FROM new WHERE runs.number = new.number;

-- name: append_plain
UPDATE runs SET head = ?1, length = ?2, changed_ms = ?3, effect_length = max(effect_length, ?8),
  steps = coalesce(?9, steps), tokens_in = coalesce(?10, tokens_in), tokens_out = coalesce(?11, tokens_out),
  progress = coalesce(?12, progress), last_error = coalesce(?13, last_error), retrying = coalesce(?14, retrying),
  hot = resealed('hot', hot, @hot, @hot(head = ?1, length = ?2, changed_ms = ?3, effect_length = max(effect_length, ?8),
    steps = coalesce(?9, steps), tokens_in = coalesce(?10, tokens_in), tokens_out = coalesce(?11, tokens_out),
    progress = coalesce(?12, progress), last_error = coalesce(?13, last_error), retrying = coalesce(?14, retrying)))
WHERE id = ?4 AND epoch = ?5 AND length = ?6 AND head = ?7 AND state = 'running'
RETURNING id, number;

-- name: begin_part
SAVEPOINT part;

-- name: undo_part
ROLLBACK TO part;

-- name: end_part
RELEASE part;

-- name: append_known
UPDATE runs SET hot = ?1, head = ?6, length = ?7, changed_ms = ?8, effect_length = ?9, steps = ?10, tokens_in = ?11,
  tokens_out = ?12, progress = ?13, last_error = ?14, retrying = ?15
WHERE number = ?3 AND hot = ?2 AND epoch = ?4 AND state = ?5 AND state = 'running';

-- name: append_known_rows
-- The same for many runs.
WITH new (hot, known, number, epoch, state, head, length, changed_ms, effect_length, steps, tokens_in, tokens_out, progress,
  last_error, retrying) AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
UPDATE runs SET hot = new.hot, head = new.head, length = new.length, changed_ms = new.changed_ms,
  effect_length = new.effect_length, steps = new.steps, tokens_in = new.tokens_in, tokens_out = new.tokens_out,
  progress = new.progress, last_error = new.last_error, retrying = new.retrying
FROM new WHERE runs.number = new.number AND runs.hot = new.known AND runs.epoch = new.epoch
  AND runs.state = new.state AND runs.state = 'running';

-- name: appended
SELECT number FROM runs WHERE number = ? AND hot = ?;

-- name: append_end_known
WITH new (hot, "check", known, known_check, number, epoch, head, length, changed_ms, effect_length, steps, tokens_in,
  tokens_out, progress, last_error, retrying)
  AS (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
UPDATE runs SET hot = new.hot, "check" = new."check", head = new.head, length = new.length, changed_ms =
  new.changed_ms, effect_length = new.effect_length, steps = new.steps, tokens_in = new.tokens_in, tokens_out =
  new.tokens_out, progress = new.progress, last_error = new.last_error, retrying = new.retrying, state = 'completed',
  session = NULL, due_ms = NULL, waits = '', deaths = 0, solo_deaths = 0, is_alone = 0, left_by = NULL
FROM new WHERE runs.number = new.number AND runs.hot = new.known AND runs."check" = new.known_check
  AND runs.epoch = new.epoch AND runs.state = 'running' AND runs.parent IS NULL
  AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.run = runs.id AND keys.state IN ('reserved', 'in doubt'))
  AND NOT EXISTS (SELECT 1 FROM waiters WHERE waiters.run = runs.id)
  AND NOT EXISTS (SELECT 1 FROM runs AS child WHERE child.parent = runs.id)
RETURNING number;

-- name: append_end
UPDATE runs SET head = ?1, length = ?2, changed_ms = ?3, effect_length = max(effect_length, ?8), state = 'completed',
  steps = coalesce(?9, steps), tokens_in = coalesce(?10, tokens_in), tokens_out = coalesce(?11, tokens_out),
  progress = coalesce(?12, progress), last_error = coalesce(?13, last_error), retrying = coalesce(?14, retrying),
  session = NULL, due_ms = NULL, waits = '', deaths = 0, solo_deaths = 0, is_alone = 0, left_by = NULL,
  hot = resealed('hot', hot, @hot, @hot(head = ?1, length = ?2, changed_ms = ?3, effect_length = max(effect_length, ?8),
    steps = coalesce(?9, steps), tokens_in = coalesce(?10, tokens_in), tokens_out = coalesce(?11, tokens_out),
    progress = coalesce(?12, progress), last_error = coalesce(?13, last_error), retrying = coalesce(?14, retrying), state = 'completed')),
  "check" = resealed('runs', "check", @runs, @runs(state = 'completed', session = NULL, due_ms = NULL, waits = '', deaths = 0, solo_deaths = 0, is_alone = 0, left_by = NULL))
WHERE id = ?4 AND epoch = ?5 AND length = ?6 AND head = ?7 AND state = 'running' AND parent IS NULL
  AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.run = runs.id AND keys.state IN ('reserved', 'in doubt'))
  AND NOT EXISTS (SELECT 1 FROM waiters WHERE waiters.run = runs.id)
  AND NOT EXISTS (SELECT 1 FROM runs AS child WHERE child.parent = runs.id)
RETURNING id, number;

-- name: insert_record
INSERT INTO records (run, seq, kind, step, at_ms, body, blobs, "check", step_kind, epoch, took_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_halved
-- The second half of a body is inserted first, so that last_insert_rowid() is its rowid.
INSERT INTO records (run, seq, kind, step, at_ms, body, blobs, "check", step_kind, epoch, took_ms, more)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, last_insert_rowid());

-- name: read_records
SELECT c.seq, c.kind, c.step, c.at_ms, c.body, c.blobs, c."check", c.step_kind, c.epoch, c.took_ms,
  CASE WHEN c.more IS NOT NULL THEN (SELECT m.body FROM records AS m WHERE m.place = c.more) END
FROM records AS c WHERE c.run = ? AND c.seq >= 0 AND c.seq >= ? ORDER BY c.seq;

-- name: read_turns
SELECT c.run, c.seq, c.kind, c.step, c.at_ms, c.body, c.blobs, c."check", c.step_kind, c.epoch, c.took_ms,
  CASE WHEN c.more IS NOT NULL THEN (SELECT m.body FROM records AS m WHERE m.place = c.more) END
FROM records AS c WHERE c.run = ? AND c.seq >= 0 AND c.seq >= ? ORDER BY c.seq;

-- name: read_record
SELECT c.seq, c.kind, c.step, c.at_ms, c.body, c.blobs, c."check", c.step_kind, c.epoch, c.took_ms,
  CASE WHEN c.more IS NOT NULL THEN (SELECT m.body FROM records AS m WHERE m.place = c.more) END
FROM records AS c WHERE c.run = ? AND c.seq >= 0 AND c.seq = ?;

-- name: move_run
UPDATE runs SET number = ?2 WHERE number = ?1;

-- name: move_signals
UPDATE signals SET run = ?2, "check" = resealed('signals', "check", @signals, @signals(run = ?2)) WHERE run = ?1;

-- name: move_blobs
UPDATE blob_runs SET run = ?2, "check" = resealed('blob_runs', "check", @blob_runs, @blob_runs(run = ?2)) WHERE run = ?1;

-- name: read_check
SELECT "check" FROM records WHERE run = ? AND seq >= 0 AND seq = ?;

-- name: waiting_agents
SELECT queues.value, agents.value, suspects.column1
FROM json_each(?1) AS agents CROSS JOIN json_each(?2) AS queues CROSS JOIN (VALUES (0), (1)) AS suspects
WHERE EXISTS (
  SELECT 1 FROM runs INDEXED BY runs_due
  WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed')
    AND queue = queues.value AND agent = agents.value AND (deaths > 1) = suspects.column1);

-- name: next_priority
SELECT max(priority) FROM runs
WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed')
  AND queue = ? AND agent = ? AND (deaths > 1) = ? AND priority < ?;

-- name: due_runs
SELECT id, number, agent, fingerprint, queue, pin, priority, labels, parent, state, paused, cancelling, epoch, session,
  head, length, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length, solo_deaths, is_alone,
  left_by, created_ms, changed_ms, effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying, "check", hot
FROM runs
WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed')
  AND queue = ?1 AND agent = ?2 AND (deaths > 1) = ?8 AND priority = ?3 AND due_ms <= ?4
  AND number NOT IN (SELECT value FROM json_each(?7)) AND (pin IS NULL OR pin = ?5)
ORDER BY due_ms, number LIMIT ?6;

-- name: first_due
SELECT min(due_ms) FROM (
  SELECT due_ms FROM runs
  WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed')
    AND queue = ?1 AND agent = ?2 AND (deaths > 1) = ?5 AND priority = ?3 AND (pin IS NULL OR pin = ?4)
  ORDER BY due_ms LIMIT 1);

-- name: has_news
SELECT 1 FROM runs WHERE id = ?1 AND intact('runs', "check", @runs) AND news <> ?2;

-- name: insert_signal
INSERT INTO signals (number, name, id, body, at_ms, taken, run, "check") VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: next_signal_number
SELECT coalesce(max(number), 0) + 1 FROM signals NOT INDEXED WHERE run = ?;

-- name: read_signal
SELECT @signals, "check" FROM signals INDEXED BY signals_id WHERE run = ? AND id = ? AND id <> '';

-- name: signal_again
SELECT 1 FROM signals NOT INDEXED WHERE run = ? AND id = ?;

-- name: waiting_signals
SELECT @signals, "check" FROM signals NOT INDEXED WHERE run = ? AND taken IS NULL ORDER BY number;

-- name: signals_of_run
SELECT @signals, "check" FROM signals NOT INDEXED WHERE run = ? ORDER BY number;

-- name: count_waiting_signals
SELECT count(*) FROM json_each(?) CROSS JOIN signals INDEXED BY signals_again ON signals.run = json_each.value
WHERE signals.taken IS NULL;

-- name: signals_of_runs
SELECT runs.id, signals.number, signals.name, signals.id, signals.body, signals.at_ms, signals.taken, signals.run,
  signals."check"
FROM json_each(?) CROSS JOIN signals NOT INDEXED ON signals.run = json_each.value
  JOIN runs ON runs.number = json_each.value
WHERE signals.taken IS NULL ORDER BY signals.run, signals.number;

-- name: take_signal
UPDATE signals SET taken = ?1, "check" = resealed('signals', "check", @signals, @signals(taken = ?1))
WHERE run = ?2 AND number = ?3;

-- name: insert_item
INSERT INTO items (id, run, kind, step, digest, body, "to", deadline_ms, opened_ms, state, answer, "by", answered_ms, "check")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_item
SELECT @items, "check" FROM items WHERE id = ?;

-- name: item_again
SELECT 1 FROM items INDEXED BY items_again WHERE run = ?1 AND id = ?2;

-- name: items_of_run
SELECT @items, "check" FROM items INDEXED BY items_run WHERE run = ? ORDER BY place;

-- name: items_of_runs
SELECT items.id, items.run, items.kind, items.step, items.digest, items.body, items."to", items.deadline_ms,
  items.opened_ms, items.state, items.answer, items."by", items.answered_ms, items."check"
FROM json_each(?) JOIN runs ON runs.number = json_each.value JOIN items INDEXED BY items_run ON items.run = runs.id
ORDER BY items.place;

-- name: count_items
SELECT count(*) FROM json_each(?) CROSS JOIN items INDEXED BY items_again ON items.run = json_each.value;

-- name: open_items_of_run
SELECT @items, "check" FROM items INDEXED BY items_run WHERE run = ? AND state = 'open' ORDER BY place;

-- name: list_inbox
SELECT @items, "check" FROM items ORDER BY place LIMIT ?;

-- name: list_open_items
SELECT @items, "check" FROM items WHERE state = 'open' ORDER BY place LIMIT ?;

-- name: close_item
UPDATE items SET state = 'closed', "check" = resealed('items', "check", @items, @items(state = 'closed'))
WHERE id = ?;

-- name: close_items_of_runs
UPDATE items SET state = 'closed', "check" = resealed('items', "check", @items, @items(state = 'closed'))
WHERE run IN (SELECT value FROM json_each(?)) AND state = 'open';

-- name: answer_item
UPDATE items SET state = 'answered', answer = ?1, "by" = ?2, answered_ms = ?3,
  "check" = resealed('items', "check", @items, @items(state = 'answered', answer = ?1, by = ?2, answered_ms = ?3))
WHERE id = ?4;

-- name: read_key
SELECT @keys, "check" FROM keys NOT INDEXED WHERE key = ?;

-- name: key_again
SELECT 1 FROM keys INDEXED BY keys_again WHERE key = ?;

-- name: write_key
INSERT INTO keys (key, action, fingerprint, run, resumable, state, generation, body, blobs, changed_ms, "check")
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (key) DO UPDATE SET action = ?2, fingerprint = ?3, run = ?4, resumable = ?5, state = ?6, generation = ?7,
  body = ?8, blobs = ?9, changed_ms = ?10, "check" = ?11;

-- name: held_keys_of_run
SELECT @keys, "check" FROM keys WHERE run = ? AND state IN ('reserved', 'in doubt') ORDER BY key;

-- name: keys_of_run
SELECT @keys, "check" FROM keys WHERE run = ? ORDER BY key;

-- name: settled_keys_of_run
SELECT @keys, "check" FROM keys WHERE run = ? AND state = 'settled' ORDER BY key;

-- name: add_waiter
INSERT OR IGNORE INTO waiters (run, key, "check") VALUES (?, ?, ?);

-- name: waiters
SELECT @waiters, "check" FROM waiters WHERE key = ? ORDER BY run;

-- name: all_waiters
SELECT @waiters, "check" FROM waiters WHERE (key, run) > (?1, ?2) ORDER BY key, run LIMIT ?3;

-- name: waits
SELECT @waiters, "check" FROM waiters WHERE run = ?;

-- name: drop_waiter
DELETE FROM waiters WHERE run = ? AND key = ?;

-- name: has_progressed
SELECT 1 FROM records
WHERE run = ? AND seq >= 0 AND seq >= ? AND kind NOT IN ('created', 'forked', 'intent', 'log', 'output', 'progress') LIMIT 1;

-- name: write_log_head
UPDATE store SET log_length = ?1, log_head = ?2,
  "check" = resealed('store', "check", @store, @store(log_length = ?1, log_head = ?2)) WHERE one = 1;

-- name: insert_entry
INSERT INTO log (seq, kind, run, session, at_ms, body, "check") VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: read_log
SELECT seq, kind, run, session, at_ms, body, "check" FROM log WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: read_log_of_run
SELECT seq, kind, run, session, at_ms, body, "check" FROM log
WHERE run <> '' AND run = ? AND seq < ? ORDER BY seq DESC LIMIT ?;

-- name: read_entry_check
SELECT "check" FROM log WHERE seq = ?;

-- name: all_entries
SELECT seq, kind, run, session, at_ms, body, "check" FROM log ORDER BY seq;

-- name: insert_session
INSERT INTO sessions (id, host, pid, code, lease_ms, agents, keeper, started_ms, renewed_ms, renewed_boot, boot, ended_ms, cause, evidence,
  counts, "check")
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_session
SELECT @sessions, "check" FROM sessions WHERE id = ?;

-- name: live_sessions
SELECT @sessions, "check" FROM sessions WHERE ended_ms IS NULL ORDER BY place;

-- name: renew_session
UPDATE sessions SET renewed_ms = ?1, renewed_boot = ?2, counts = ?4,
  "check" = resealed('sessions', "check", @sessions, @sessions(renewed_ms = ?1, renewed_boot = ?2, counts = ?4))
WHERE id = ?3;

-- name: end_session
UPDATE sessions SET ended_ms = ?1, cause = ?2, evidence = ?3, counts = '',
  "check" = resealed('sessions', "check", @sessions, @sessions(ended_ms = ?1, cause = ?2, evidence = ?3, counts = ''))
WHERE id = ?4;

-- name: prove_session
UPDATE sessions SET evidence = ?1,
  "check" = resealed('sessions', "check", @sessions, @sessions(evidence = ?1))
WHERE id = ?2;

-- name: expired_sessions
SELECT @sessions, "check" FROM sessions INDEXED BY sessions_expired
WHERE cause = 'expired' AND evidence IS NULL ORDER BY place;

-- name: sweep_session
UPDATE sessions SET evidence = ?1,
  "check" = resealed('sessions', "check", @sessions, @sessions(evidence = ?1))
WHERE id = ?2 AND evidence IS NULL;

-- name: touch_blob
UPDATE blobs SET put_ms = ?1, "check" = resealed('blobs', "check", @blobs, @blobs(put_ms = ?1))
WHERE digest = ?2 AND put_ms < ?3;

-- name: has_blob
SELECT 1 FROM blobs WHERE digest = ?;

-- name: insert_blob
INSERT INTO blobs (digest, put_ms, "check", packed) VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING;

-- name: read_blob
SELECT packed, @blobs, "check" FROM blobs WHERE digest = ?;

-- name: refer_blob
INSERT OR IGNORE INTO blob_runs (digest, run, "check") VALUES (?, ?, ?);

-- name: count_runs
SELECT state, count(*) FROM runs GROUP BY state;

-- name: count_others
SELECT (SELECT count(*) FROM records WHERE seq >= 0),
       (SELECT coalesce(sum(length(body)), 0) FROM records),
       (SELECT count(*) FROM blobs),
       (SELECT coalesce(sum(length(packed)), 0) FROM blobs),
       (SELECT count(*) FROM keys),
       (SELECT count(*) FROM items WHERE state = 'open'),
       (SELECT count(*) FROM sessions WHERE ended_ms IS NULL);

-- name: runs_between
SELECT number, id FROM runs WHERE number > ?1 AND number <= ?2 ORDER BY number LIMIT ?3;

-- name: last_run
SELECT coalesce(max(number), 0) FROM runs;

-- name: all_keys
SELECT @keys, "check" FROM keys WHERE key > ?1 ORDER BY key LIMIT ?2;

-- name: all_items
SELECT @items, "check" FROM items WHERE id > ?1 ORDER BY id LIMIT ?2;

-- name: all_signals
SELECT @signals, "check" FROM signals WHERE (run, number) > (?1, ?2) ORDER BY run, number LIMIT ?3;

-- name: all_sessions
SELECT @sessions, "check" FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2;

-- name: signal_numbers
SELECT number, taken FROM signals WHERE run = ?;

-- name: item_states
SELECT id, state FROM items WHERE run = ?;

-- name: known_sessions
SELECT id FROM sessions WHERE id IN (?, ?);

-- name: blob_digests
SELECT place, digest FROM blobs WHERE place > ?1 ORDER BY place LIMIT ?2;

-- name: last_recorded
SELECT coalesce(max(run), 0) FROM records WHERE seq >= 0;

-- name: stray_records
-- Jumps from one run to the next: reading every record would take as long as the journals.
WITH RECURSIVE found (run) AS (
  SELECT min(run) FROM records WHERE seq >= 0 AND run > ?1
  UNION ALL
  SELECT (SELECT min(run) FROM records WHERE seq >= 0 AND records.run > found.run) FROM found
  WHERE found.run IS NOT NULL LIMIT ?2)
SELECT run, run NOT IN (SELECT number FROM runs) FROM found WHERE run IS NOT NULL;

-- name: missing_blobs
SELECT runs.id, blob_runs.digest FROM blob_runs JOIN runs ON runs.number = blob_runs.run
WHERE (blob_runs.digest, blob_runs.run) > (?1, ?2) AND (blob_runs.digest, blob_runs.run) <= (?3, ?4)
  AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.digest = blob_runs.digest);

-- name: blobs_of_run
SELECT digest FROM blob_runs WHERE run = ?;

-- name: blob_references
SELECT @blob_runs, "check" FROM blob_runs WHERE (digest, run) > (?1, ?2) ORDER BY digest, run LIMIT ?3;

-- name: stray_keys
SELECT key, run, state FROM keys WHERE key > ?1 AND key <= ?2 AND state IN ('reserved', 'in doubt')
  AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.id = keys.run AND runs.state NOT IN ('completed', 'failed', 'cancelled'));

-- name: ended_runs
SELECT id FROM runs INDEXED BY runs_ended
WHERE (state = 'completed' OR state = 'failed' OR state = 'cancelled') AND (base = length) = 0 AND changed_ms < ?1
  AND changed_ms < coalesce((SELECT own.value FROM json_each(?2) AS own WHERE own.key = agent), ?3)
ORDER BY changed_ms LIMIT 20;

-- name: forgettable_runs
SELECT id FROM runs INDEXED BY runs_ended
WHERE (state = 'completed' OR state = 'failed' OR state = 'cancelled') AND (base = length) = 1 AND changed_ms < ?
ORDER BY changed_ms LIMIT 100;

-- name: long_runs
SELECT number, id FROM runs
WHERE number > ? AND turn >= 2 AND state NOT IN ('completed', 'failed', 'cancelled') ORDER BY number LIMIT 100;

-- name: previous_turn
SELECT max(seq) FROM records WHERE run = ? AND seq >= 0 AND seq < ? AND kind = 'turn';

-- name: rebase_run
UPDATE runs SET base = ?, base_check = ?, "check" = ?, hot = ? WHERE number = ?;

-- name: delete_records
DELETE FROM records WHERE run = ? AND seq >= 0 AND seq < ? RETURNING 1;

-- name: delete_halves
-- Only delete what `more` refers to if it is a half of the same run.
DELETE FROM records WHERE run = ?1 AND seq = -1 AND place IN (
  SELECT more FROM records WHERE run = ?1 AND seq >= 0 AND seq < ?2 AND more IS NOT NULL);

-- name: delete_signals
DELETE FROM signals WHERE run = ?;

-- name: delete_items
DELETE FROM items WHERE run = ?;

-- name: forget_blobs
DELETE FROM blob_runs WHERE run = ?;

-- name: forget_run
DELETE FROM runs WHERE number = ?;

-- name: old_blobs
SELECT @blobs, "check" FROM blobs
WHERE put_ms < ?1 AND digest NOT IN (SELECT digest FROM blob_runs)
  AND hex(digest) NOT IN (SELECT spared.value FROM json_each(?2) AS spared) LIMIT ?3;

-- name: lost_references
-- What journals and keys refer to without a row that keeps it. Reads every record: ask when there is something to sweep.
WITH RECURSIVE holder (run, blobs) AS (
  SELECT run, blobs FROM records NOT INDEXED WHERE seq >= 0 AND blobs IS NOT NULL
  UNION ALL
  SELECT runs.number, keys.blobs FROM keys JOIN runs ON runs.id = keys.run WHERE keys.blobs IS NOT NULL),
needed (run, digest, rest) AS (
  SELECT run, substr(blobs, 1, ?1), substr(blobs, ?1 + 1) FROM holder
  UNION ALL
  SELECT run, substr(rest, 1, ?1), substr(rest, ?1 + 1) FROM needed WHERE rest <> x'')
SELECT DISTINCT hex(digest) FROM needed
WHERE NOT EXISTS (SELECT 1 FROM blob_runs WHERE blob_runs.digest = needed.digest AND blob_runs.run = needed.run);

-- name: delete_blob
DELETE FROM blobs WHERE digest = ?;

-- name: unfinished_runs
SELECT id FROM runs WHERE state NOT IN ('completed', 'failed', 'cancelled', 'moved') ORDER BY number;

-- name: moved_runs
SELECT id FROM runs WHERE state = 'moved' ORDER BY number;

-- name: save_document
INSERT INTO documents (name, version, body, changed_ms, "check") VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, body = excluded.body, changed_ms = excluded.changed_ms,
  "check" = excluded."check";

-- name: read_document
SELECT @documents, "check" FROM documents WHERE name = ?;

-- name: list_documents
SELECT @documents, "check" FROM documents WHERE name > ? AND name >= ? AND name < ? ORDER BY name LIMIT ?;

-- name: delete_document
DELETE FROM documents WHERE name = ?;

-- name: all_documents
SELECT @documents, "check" FROM documents WHERE name > ?1 ORDER BY name LIMIT ?2;

-- name: gauge_runs
SELECT agent, queue, state, count(*), sum(paused),
  min(CASE WHEN paused = 0 AND state IN ('pending', 'checkpointed') THEN due_ms END)
FROM runs INDEXED BY runs_state WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved')
GROUP BY agent, queue, state;

-- name: gauge_held
SELECT session, agent, count(*) FROM runs INDEXED BY runs_session WHERE session IS NOT NULL GROUP BY session, agent;

-- name: gauge_left
SELECT runs.agent, count(*), min(sessions.ended_ms)
FROM runs INDEXED BY runs_state CROSS JOIN sessions ON sessions.id = runs.left_by
WHERE runs.state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') AND runs.left_by IS NOT NULL AND runs.paused = 0
  AND (runs.session IS NULL OR runs.length <= runs.death_length) AND sessions.cause <> 'stopped'
GROUP BY runs.agent;

-- name: gauge_retrying
SELECT agent, coalesce(CASE WHEN json_valid(retrying) THEN json_extract(retrying, '$.reason') END, '') AS reason, count(*)
FROM runs INDEXED BY runs_state
WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') AND retrying <> '' GROUP BY agent, reason;

-- name: gauge_items
SELECT runs.agent, items.kind, items.step, count(*), min(items.opened_ms)
FROM items INDEXED BY items_open CROSS JOIN runs ON runs.id = items.run WHERE items.state = 'open'
GROUP BY runs.agent, items.kind, items.step;

-- name: save_counter
INSERT INTO counters (name, labels, value, "check") VALUES (?, ?, ?, ?)
ON CONFLICT (name, labels) DO UPDATE SET value = excluded.value, "check" = excluded."check";

-- name: read_counter
SELECT @counters, "check" FROM counters WHERE name = ? AND labels = ?;

-- name: all_counters
SELECT @counters, "check" FROM counters;

-- name: count_runs_by_agent
SELECT agent, queue, state, count(*) FROM runs INDEXED BY runs_ended
WHERE (state = 'completed' OR state = 'failed' OR state = 'cancelled') GROUP BY agent, queue, state
UNION ALL
SELECT agent, queue, state, count(*) FROM runs INDEXED BY runs_state
WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved') GROUP BY agent, queue, state;

-- name: mark_runs
SELECT number, id, state, length, head, created_ms, "check", hot FROM runs WHERE number > ? ORDER BY number LIMIT ?;

-- name: mark_unfinished
SELECT id, state, length, head, created_ms, "check", hot FROM runs
WHERE state IN ('pending', 'running', 'checkpointed', 'escalated', 'moved');

-- name: mark_ended
SELECT id, state, length, head, created_ms, "check", hot FROM runs INDEXED BY runs_ended
WHERE (base = length) IN (0, 1) AND changed_ms >= ? AND (state = 'completed' OR state = 'failed' OR state = 'cancelled');

-- name: list_keys
SELECT @keys, "check" FROM keys NOT INDEXED WHERE key > ? ORDER BY key LIMIT ?;

-- name: save_log_base
INSERT INTO log_base (one, seq, head, "check") VALUES (?, ?, ?, ?)
ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, head = excluded.head, "check" = excluded."check";

-- name: read_log_base
SELECT @log_base, "check" FROM log_base;

-- name: oldest_entries
SELECT seq, kind, run, session, at_ms, body, "check" FROM log ORDER BY seq LIMIT ?;

-- name: cut_log
DELETE FROM log WHERE seq < ?;

-- name: old_sessions
SELECT @sessions, "check" FROM sessions
WHERE ended_ms < ? AND NOT (cause = 'expired' AND evidence IS NULL)
  AND id NOT IN (SELECT left_by FROM runs WHERE left_by IS NOT NULL)
ORDER BY place LIMIT ?;

-- name: delete_session
DELETE FROM sessions WHERE id = ?;
