"""Values: what users' arguments and results become on disk, and how they come back.

- `codec`: encode and decode a value by its annotation; `types` reads annotations, `classes` dataclasses
  and models, `scalars` and `containers` the built-in types, `trusted` loads recorded values without
  validating again
- `exceptions`: errors as values; `retry`: which failures are tried again, and when
- `fingerprint`: the digest of a call's arguments; `growing_lists` hashes only what is new in a list,
  `preview` cuts values for people
- `blobs`: large values by their digest; `list_parts` stores a list item by item
- `json_schema`: the schema of a type, for forms; `token_usage`: tokens and model found in a result
"""
