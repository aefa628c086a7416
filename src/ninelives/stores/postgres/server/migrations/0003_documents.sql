-- Small facts of operators (core/model/document.py).
CREATE TABLE :schema.documents (
  name       text COLLATE "C" PRIMARY KEY,
  version    bigint NOT NULL,
  body       bytea  NOT NULL,
  changed_ms bigint NOT NULL
);

-- What only grows (core/rules/counting.py), and what a live session has done by its last renewal.
CREATE TABLE :schema.counters (
  name   text COLLATE "C" NOT NULL,
  labels text COLLATE "C" NOT NULL,
  value  bigint NOT NULL,
  PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);
ALTER TABLE :schema.sessions ADD COLUMN counts text NOT NULL DEFAULT '';

-- With the columns by which ended runs are counted, so that no row of them is read for that.
DROP INDEX :schema.runs_ended;
CREATE INDEX runs_ended ON :schema.runs (is_pruned, ended_ms) INCLUDE (agent, queue, state) WHERE ended_ms IS NOT NULL;

-- Where the recovery log begins, once its oldest entries were removed: the first number, and the check before it.
ALTER TABLE :schema.log_head
  ADD COLUMN base       bigint NOT NULL DEFAULT 0,
  ADD COLUMN base_check bytea;
