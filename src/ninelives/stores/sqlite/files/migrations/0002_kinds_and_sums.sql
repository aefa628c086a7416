-- What a record says of its step, and the life that wrote it. Records of before have none of it, and are checked by
-- the rule of then (core/journal/chain.py): they are never rewritten.
ALTER TABLE records ADD COLUMN step_kind TEXT;
ALTER TABLE records ADD COLUMN epoch INTEGER;
ALTER TABLE records ADD COLUMN took_ms INTEGER;
-- The place of the row with the second half of the body: three rows of 1 KiB to a page would leave a fifth of it
-- empty. Such a row has the number -1, and stands in no index.
ALTER TABLE records ADD COLUMN more INTEGER;
DROP INDEX records_run;
CREATE UNIQUE INDEX records_run ON records (run, seq) WHERE seq >= 0;

-- What the row sums up of the journal (core/model/totals.py).
ALTER TABLE runs ADD COLUMN steps      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN tokens_in  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN tokens_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN progress   TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN last_error TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN retrying   TEXT    NOT NULL DEFAULT '';
UPDATE runs SET
  steps = (
    SELECT count(*) FROM records
    WHERE run = runs.number AND seq >= 0 AND kind IN ('result', 'failure', 'withdrawn', 'signal')),
  progress = coalesce((
    SELECT CAST(body AS TEXT) FROM records
    WHERE run = runs.number AND seq >= 0 AND kind = 'progress' AND body <> x'' ORDER BY seq DESC LIMIT 1), '');

-- Which runs have a label.
CREATE TABLE labels (
  name  TEXT    NOT NULL,
  value TEXT    NOT NULL,
  run   INTEGER NOT NULL,
  PRIMARY KEY (name, value, run)
) STRICT, WITHOUT ROWID;
INSERT INTO labels (name, value, run)
SELECT label.key, label.value, runs.number
FROM runs CROSS JOIN json_each(CASE WHEN json_valid(runs.labels) THEN runs.labels ELSE '{}' END) AS label;

-- Every row carries its own check, instead of every page (checks.py). And what must not be missed can be found on a
-- second way: an index that is damaged does not hide it from the other one.
ALTER TABLE store     ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE runs      ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE signals   ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE items     ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE keys      ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE waiters   ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE sessions  ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE blobs     ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE blob_runs ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE labels    ADD COLUMN "check" BLOB NOT NULL DEFAULT x'';
ALTER TABLE runs      ADD COLUMN hot     BLOB NOT NULL DEFAULT x'';
CREATE INDEX runs_again    ON runs (id);
CREATE INDEX keys_again    ON keys (key);
CREATE INDEX signals_again ON signals (run, taken);
CREATE INDEX items_again   ON items (run, id);
UPDATE store SET "check" = sealed('store', id, version, commits, runs, log_length, log_head);
UPDATE runs SET "check" = sealed('runs', id, number, agent, fingerprint, queue, pin, priority, labels, parent, state,
  paused, cancelling, epoch, session, base, base_check, turn, turn_seq, due_ms, waits, news, deaths, death_length,
  solo_deaths, is_alone, left_by, created_ms), hot = sealed('hot', number, epoch, state, head, length, changed_ms,
  effect_length, steps, tokens_in, tokens_out, progress, last_error, retrying);
UPDATE signals SET "check" = sealed('signals', number, name, id, body, at_ms, taken, run);
UPDATE items SET "check" = sealed('items', id, run, kind, step, digest, body, "to", deadline_ms, opened_ms, state,
  answer, "by", answered_ms);
UPDATE keys SET "check" = sealed('keys', key, action, fingerprint, run, resumable, state, generation, body, blobs,
  changed_ms);
UPDATE waiters SET "check" = sealed('waiters', run, key);
UPDATE sessions SET "check" = sealed('sessions', id, host, pid, code, lease_ms, agents, keeper, started_ms,
  renewed_ms, renewed_boot, boot, ended_ms, cause, evidence);
UPDATE blobs SET "check" = sealed('blobs', digest, put_ms);
UPDATE blob_runs SET "check" = sealed('blob_runs', digest, run);
UPDATE labels SET "check" = sealed('labels', name, value, run);
