-- Small facts of operators (core/model/document.py).
CREATE TABLE documents (
  name       TEXT    NOT NULL PRIMARY KEY,
  version    INTEGER NOT NULL,
  body       BLOB    NOT NULL,
  changed_ms INTEGER NOT NULL,
  "check"    BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

-- What only grows (core/rules/counting.py), and what a live session has done by its last renewal. A row whose old check
-- fails keeps it, and so is found as damaged.
CREATE TABLE counters (
  name    TEXT    NOT NULL,
  labels  TEXT    NOT NULL,
  value   INTEGER NOT NULL,
  "check" BLOB    NOT NULL,
  PRIMARY KEY (name, labels)
) STRICT, WITHOUT ROWID;
ALTER TABLE sessions ADD COLUMN counts TEXT NOT NULL DEFAULT '';
UPDATE sessions SET "check" = sealed('sessions', id, host, pid, code, lease_ms, agents, keeper, started_ms, renewed_ms,
  renewed_boot, boot, ended_ms, cause, evidence, counts)
WHERE "check" = sealed('sessions', id, host, pid, code, lease_ms, agents, keeper, started_ms, renewed_ms, renewed_boot,
  boot, ended_ms, cause, evidence);

-- With the columns by which ended runs are counted, so that no row of them is read for that.
DROP INDEX runs_ended;
CREATE INDEX runs_ended ON runs ((base = length), changed_ms, agent, queue, state)
  WHERE (state = 'completed' OR state = 'failed' OR state = 'cancelled');

-- Where the recovery log begins, once its oldest entries were removed: the first number, and the check before it.
CREATE TABLE log_base (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  seq     INTEGER NOT NULL,
  head    BLOB    NOT NULL,
  "check" BLOB    NOT NULL
) STRICT;
