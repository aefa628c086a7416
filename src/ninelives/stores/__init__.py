"""Stores: each implements `ninelives.store.Store`.

- `open`: open a store by its URL; `url`, `presence`, `clock`
- `memory`: the reference; `sqlite`: the default; `postgres`, `redis`: many machines
- `shared`: what several of them use
"""
