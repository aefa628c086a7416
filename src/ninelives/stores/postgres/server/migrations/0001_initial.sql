-- One row: who we are and which version of the schema this is. A process of another version stops.
CREATE TABLE :schema.store (
  one     integer PRIMARY KEY CHECK (one = 1),
  id      bytea   NOT NULL,
  version integer NOT NULL
);

-- One row per connection that writes: it counts its transactions, so that after a COMMIT whose answer was
-- lost the next connection can read whether it happened.
CREATE TABLE :schema.writers (
  id         text COLLATE "C" PRIMARY KEY,
  commits    bigint NOT NULL,
  touched_ms bigint NOT NULL
) WITH (fillfactor = 50);

CREATE SEQUENCE :schema.run_numbers;

-- Rows change in place (HOT) while a run only appends: no index names head, length or changed_ms. `ended_ms` (when it came
-- to a final state) and `is_pruned` (base = length) are for indexes; generated ones would be parsed anew at every step.
CREATE TABLE :schema.runs (
  number        bigint PRIMARY KEY,
  id            text COLLATE "C" NOT NULL UNIQUE,
  agent         text COLLATE "C" NOT NULL,
  fingerprint   bytea   NOT NULL,
  queue         text COLLATE "C" NOT NULL,
  pin           text COLLATE "C",
  priority      bigint  NOT NULL,
  labels        text    NOT NULL,
  parent        text COLLATE "C",
  state         text COLLATE "C" NOT NULL,
  paused        boolean NOT NULL,
  cancelling    boolean NOT NULL,
  epoch         bigint  NOT NULL,
  session       text COLLATE "C",
  head          bytea   NOT NULL,
  length        bigint  NOT NULL,
  base          bigint  NOT NULL,
  base_check    bytea   NOT NULL,
  turn          bigint  NOT NULL,
  turn_seq      bigint  NOT NULL,
  due_ms        bigint,
  waits         text    NOT NULL,
  news          bigint  NOT NULL,
  deaths        bigint  NOT NULL,
  death_length  bigint  NOT NULL,
  solo_deaths   bigint  NOT NULL,
  is_alone      boolean NOT NULL,
  left_by       text COLLATE "C",
  created_ms    bigint  NOT NULL,
  changed_ms    bigint  NOT NULL,
  effect_length bigint  NOT NULL,
  ended_ms      bigint,
  is_pruned     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
-- Claims walk one (queue, agent, priority) at a time, so that a backlog of timers costs them nothing; and
-- runs that are only given alone (core/rules/deaths.py) apart from the others.
CREATE INDEX runs_due     ON :schema.runs (queue, agent, (deaths > 1), priority, due_ms, number)
  WHERE due_ms IS NOT NULL AND NOT paused AND state IN ('pending', 'checkpointed');
CREATE INDEX runs_session ON :schema.runs (session) WHERE session IS NOT NULL;
CREATE INDEX runs_parent  ON :schema.runs (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX runs_state   ON :schema.runs (state, number);
CREATE INDEX runs_ended   ON :schema.runs (is_pruned, ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE :schema.records (
  run     bigint NOT NULL,
  seq     bigint NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  step    text   NOT NULL,
  at_ms   bigint NOT NULL,
  body    bytea  NOT NULL,
  blobs   bytea,
  "check" bytea  NOT NULL,
  PRIMARY KEY (run, seq)
);

CREATE TABLE :schema.signals (
  run    bigint NOT NULL,
  number bigint NOT NULL,
  name   text   NOT NULL,
  id     text COLLATE "C" NOT NULL,
  body   bytea  NOT NULL,
  at_ms  bigint NOT NULL,
  taken  bigint,
  PRIMARY KEY (run, number)
);
CREATE UNIQUE INDEX signals_id ON :schema.signals (run, id) WHERE id <> '';
CREATE INDEX signals_waiting ON :schema.signals (run, number) WHERE taken IS NULL;

CREATE TABLE :schema.items (
  place       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id          text COLLATE "C" NOT NULL UNIQUE,
  run         text COLLATE "C" NOT NULL,
  kind        text  NOT NULL,
  step        text  NOT NULL,
  digest      bytea NOT NULL,
  body        bytea NOT NULL,
  "to"        text  NOT NULL,
  deadline_ms bigint,
  opened_ms   bigint NOT NULL,
  state       text COLLATE "C" NOT NULL,
  answer      bytea NOT NULL,
  "by"        text  NOT NULL,
  answered_ms bigint
);
CREATE INDEX items_run  ON :schema.items (run);
CREATE INDEX items_open ON :schema.items (place) WHERE state = 'open';

CREATE TABLE :schema.keys (
  key         text COLLATE "C" PRIMARY KEY,
  action      text    NOT NULL,
  fingerprint bytea   NOT NULL,
  run         text COLLATE "C" NOT NULL,
  resumable   boolean NOT NULL,
  state       text COLLATE "C" NOT NULL,
  generation  bigint  NOT NULL,
  body        bytea   NOT NULL,
  blobs       bytea,
  changed_ms  bigint  NOT NULL
);
CREATE INDEX keys_run ON :schema.keys (run);

CREATE TABLE :schema.waiters (
  key text COLLATE "C" NOT NULL,
  run text COLLATE "C" NOT NULL,
  PRIMARY KEY (key, run)
);
CREATE INDEX waiters_run ON :schema.waiters (run);

-- `locked_ms` is when the server last saw the session hold its lock; NULL: it has none (behind a pooler).
CREATE TABLE :schema.sessions (
  place        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id           text COLLATE "C" NOT NULL UNIQUE,
  host         text   NOT NULL,
  pid          bigint NOT NULL,
  code         text   NOT NULL,
  lease_ms     bigint NOT NULL,
  agents       text   NOT NULL,
  keeper       text   NOT NULL,
  started_ms   bigint NOT NULL,
  renewed_ms   bigint NOT NULL,
  renewed_boot bigint NOT NULL,
  boot         text   NOT NULL,
  ended_ms     bigint,
  cause        text,
  evidence     bytea,
  locked_ms    bigint
);
CREATE INDEX sessions_live ON :schema.sessions (place) WHERE ended_ms IS NULL;

-- The recovery log; its last check and its length are in log_head, so that a cut tail is seen.
CREATE TABLE :schema.log (
  seq     bigint PRIMARY KEY,
  kind    text   NOT NULL,
  run     text COLLATE "C" NOT NULL,
  session text   NOT NULL,
  at_ms   bigint NOT NULL,
  body    bytea  NOT NULL,
  "check" bytea  NOT NULL
);
CREATE INDEX log_run ON :schema.log (run, seq) WHERE run <> '';
CREATE TABLE :schema.log_head (
  one    integer PRIMARY KEY CHECK (one = 1),
  length bigint  NOT NULL,
  head   bytea   NOT NULL
);

CREATE TABLE :schema.blobs (
  digest bytea  PRIMARY KEY,
  packed bytea  NOT NULL,
  put_ms bigint NOT NULL
);
ALTER TABLE :schema.blobs ALTER packed SET STORAGE EXTERNAL;  -- it is compressed already
-- Which runs refer to a blob. Held until the run's journal is pruned.
CREATE TABLE :schema.blob_runs (
  digest bytea  NOT NULL,
  run    bigint NOT NULL,
  PRIMARY KEY (digest, run)
);
CREATE INDEX blob_runs_run ON :schema.blob_runs (run);
