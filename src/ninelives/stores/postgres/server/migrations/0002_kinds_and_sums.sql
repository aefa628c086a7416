-- What a record says of its step, and the life that wrote it. Records of before have none of it, and are checked by
-- the rule of then (core/journal/chain.py): they are never rewritten.
ALTER TABLE :schema.records
  ADD COLUMN step_kind text COLLATE "C",
  ADD COLUMN epoch     bigint,
  ADD COLUMN took_ms   bigint;

-- What the row sums up of the journal (core/model/totals.py).
ALTER TABLE :schema.runs
  ADD COLUMN steps      bigint NOT NULL DEFAULT 0,
  ADD COLUMN tokens_in  bigint NOT NULL DEFAULT 0,
  ADD COLUMN tokens_out bigint NOT NULL DEFAULT 0,
  ADD COLUMN progress   text   NOT NULL DEFAULT '',
  ADD COLUMN last_error text   NOT NULL DEFAULT '',
  ADD COLUMN retrying   text   NOT NULL DEFAULT '';
UPDATE :schema.runs AS r SET steps = found.steps
FROM (
  SELECT c.run, count(*) AS steps FROM :schema.records AS c
  WHERE c.kind IN ('result', 'failure', 'withdrawn', 'signal') GROUP BY c.run) AS found
WHERE r.number = found.run;
DO $$ BEGIN
  UPDATE :schema.runs AS r SET progress = found.said
  FROM (
    SELECT DISTINCT ON (c.run) c.run, convert_from(c.body, 'UTF8') AS said FROM :schema.records AS c
    WHERE c.kind = 'progress' AND c.body <> '' ORDER BY c.run, c.seq DESC) AS found
  WHERE r.number = found.run;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
  NULL;  -- a damaged record must not keep the store from being opened; this is for people only
END $$;

-- Which runs have a label. Labels never change, so a step does not touch this.
CREATE INDEX runs_labels ON :schema.runs USING gin ((labels::jsonb) jsonb_path_ops) WITH (fastupdate = off)
  WHERE labels <> '{}';
