"""Stores: each implements `ninelives.store.Store`.

- `open`: open a store by its URL; `presence`: whether it exists; `url`, `clock`
- `memory`: the reference; `sqlite`: the default; `postgres`, `redis`: several machines
- `compaction`: give disk space back; `store_id`: the id by which moves and signatures know a store
- `durable_files`: files that are whole or not there
- `shared`: code that several stores use; `encrypted`: a store above any other, which encrypts
"""
