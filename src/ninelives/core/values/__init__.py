"""Values: users' arguments, results and errors as bytes, and back.

- `codec`: encode and decode a value by its annotation; `types` turns annotations into shapes, `classes` has
  the shapes of dataclasses and models, `scalars` and `containers` those of built-in types; `trusted` loads
  recorded values without validating them again
- `exceptions`: errors as values; `retry`: which failures are retried, and when
- `fingerprint`: the digest of a call's arguments, and their preview for people
- `lists`: hash and store only what is new in a long list; `blobs`: large values by their digest
- `json_schema`: the schema of a type, for answers; `token_usage`: tokens and model found in a result
"""
