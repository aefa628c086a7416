-- One row that every transaction updates: who we are, how many commits there were (see anchor.py), the
-- next run's number; and the length and last check of the recovery log, so that a cut tail of it is seen.
-- A process of another schema version finds no row to update and stops.
CREATE TABLE store (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  id         BLOB    NOT NULL,
  version    INTEGER NOT NULL,
  commits    INTEGER NOT NULL,
  runs       INTEGER NOT NULL,
  log_length INTEGER NOT NULL,
  log_head   BLOB    NOT NULL
) STRICT;

CREATE TABLE runs (
  number       INTEGER PRIMARY KEY,
  id           TEXT    NOT NULL UNIQUE,
  agent        TEXT    NOT NULL,
  fingerprint  BLOB    NOT NULL,
  queue        TEXT    NOT NULL,
  pin          TEXT,
  priority     INTEGER NOT NULL,
  labels       TEXT    NOT NULL,
  parent       TEXT,
  state        TEXT    NOT NULL,
  paused       INTEGER NOT NULL,
  cancelling   INTEGER NOT NULL,
  epoch        INTEGER NOT NULL,
  session      TEXT,
  head         BLOB    NOT NULL,
  length       INTEGER NOT NULL,
  base         INTEGER NOT NULL,
  base_check   BLOB    NOT NULL,
  turn         INTEGER NOT NULL,
  turn_seq     INTEGER NOT NULL,
  due_ms       INTEGER,
  waits        TEXT    NOT NULL,
  news         INTEGER NOT NULL,
  deaths       INTEGER NOT NULL,
  death_length INTEGER NOT NULL,
  solo_deaths  INTEGER NOT NULL,
  is_alone     INTEGER NOT NULL,
  left_by      TEXT,
  created_ms   INTEGER NOT NULL,
  changed_ms   INTEGER NOT NULL,
  effect_length INTEGER NOT NULL
) STRICT;
-- Claims walk one (queue, agent, priority) at a time, so that a backlog of timers costs them nothing; and
-- runs that are only given alone (core/rules/deaths.py) apart from the others.
CREATE INDEX runs_due     ON runs (queue, agent, (deaths > 1), priority, due_ms, number)
  WHERE due_ms IS NOT NULL AND paused = 0 AND state IN ('pending', 'checkpointed');
CREATE INDEX runs_session ON runs (session) WHERE session IS NOT NULL;
CREATE INDEX runs_parent  ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_state   ON runs (state, number);
-- Those that have ended: with their journals, then those whose journals are pruned. Every append asks whether
-- its run belongs here; an IN of three would build a table to answer.
CREATE INDEX runs_ended   ON runs ((base = length), changed_ms)
  WHERE (state = 'completed' OR state = 'failed' OR state = 'cancelled');

-- A heap in order of arrival with a slim index: a commit of many runs fills whole pages one after the
-- other, instead of touching one page per run.
CREATE TABLE records (
  place   INTEGER PRIMARY KEY,
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  kind    TEXT    NOT NULL,
  step    TEXT    NOT NULL,
  at_ms   INTEGER NOT NULL,
  body    BLOB    NOT NULL,
  blobs   BLOB,
  "check" BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX records_run ON records (run, seq);

CREATE TABLE signals (
  run    INTEGER NOT NULL,
  number INTEGER NOT NULL,
  name   TEXT    NOT NULL,
  id     TEXT    NOT NULL,
  body   BLOB    NOT NULL,
  at_ms  INTEGER NOT NULL,
  taken  INTEGER,
  PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX signals_id  ON signals (run, id) WHERE id <> '';

CREATE TABLE items (
  place       INTEGER PRIMARY KEY,
  id          TEXT    NOT NULL UNIQUE,
  run         TEXT    NOT NULL,
  kind        TEXT    NOT NULL,
  step        TEXT    NOT NULL,
  digest      BLOB    NOT NULL,
  body        BLOB    NOT NULL,
  "to"        TEXT    NOT NULL,
  deadline_ms INTEGER,
  opened_ms   INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  answer      BLOB    NOT NULL,
  "by"        TEXT    NOT NULL,
  answered_ms INTEGER
) STRICT;
CREATE INDEX items_run  ON items (run);
CREATE INDEX items_open ON items (place) WHERE state = 'open';

CREATE TABLE keys (
  key         TEXT    NOT NULL PRIMARY KEY,
  action      TEXT    NOT NULL,
  fingerprint BLOB    NOT NULL,
  run         TEXT    NOT NULL,
  resumable   INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  generation  INTEGER NOT NULL,
  body        BLOB    NOT NULL,
  blobs       BLOB,
  changed_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_run ON keys (run);

CREATE TABLE waiters (
  key TEXT NOT NULL,
  run TEXT NOT NULL,
  PRIMARY KEY (key, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiters_run ON waiters (run);

-- Renewals are on the boot-time clock, which no one can set; they mean nothing after a reboot.
CREATE TABLE sessions (
  place        INTEGER PRIMARY KEY,
  id           TEXT    NOT NULL UNIQUE,
  host         TEXT    NOT NULL,
  pid          INTEGER NOT NULL,
  code         TEXT    NOT NULL,
  lease_ms     INTEGER NOT NULL,
  agents       TEXT    NOT NULL,
  keeper       TEXT    NOT NULL,
  started_ms   INTEGER NOT NULL,
  renewed_ms   INTEGER NOT NULL,
  renewed_boot INTEGER NOT NULL,
  boot         TEXT    NOT NULL,
  ended_ms     INTEGER,
  cause        TEXT,
  evidence     BLOB
) STRICT;
CREATE INDEX sessions_live ON sessions (place) WHERE ended_ms IS NULL;
-- Of whose processes nothing is known: they may live on.
CREATE INDEX sessions_expired ON sessions (place) WHERE cause = 'expired' AND evidence IS NULL;

-- The recovery log.
CREATE TABLE log (
  seq     INTEGER PRIMARY KEY,
  kind    TEXT    NOT NULL,
  run     TEXT    NOT NULL,
  session TEXT    NOT NULL,
  at_ms   INTEGER NOT NULL,
  body    BLOB    NOT NULL,
  "check" BLOB    NOT NULL
) STRICT;
CREATE INDEX log_run ON log (run, seq) WHERE run <> '';

CREATE TABLE blobs (
  place  INTEGER PRIMARY KEY,
  digest BLOB    NOT NULL UNIQUE,
  packed BLOB    NOT NULL,
  put_ms INTEGER NOT NULL
) STRICT;
-- Which runs refer to a blob. Held until the run's journal is pruned.
CREATE TABLE blob_runs (
  digest BLOB    NOT NULL,
  run    INTEGER NOT NULL,
  PRIMARY KEY (digest, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_runs_run ON blob_runs (run);
