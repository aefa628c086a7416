"""Rules: a row in, a row out. Every store applies the same ones.

- `run_rules`: creating, claiming, committing, parking, ending, controlling a run
- `dedup`: the dedup table; `deaths`: what the death of a worker costs a run; `inbox_rules`: signals and
  items
- `validation`: what is wrong with what a store is given; `recovery_check`: what must hold after a
  takeover
- `restore`: what becomes of a run whose store is restored from a backup
"""
