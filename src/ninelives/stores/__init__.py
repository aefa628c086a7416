"""Stores: each implements `ninelives.store.Store`.

- `open`: open a store by its URL; `presence`: whether it exists; `url`, `clock`
- `memory`: the reference; `sqlite`: the default; `postgres`, `redis`: several machines
- `shared`: code that several stores use
"""
