"""Rules: a row in, a row out. Every store applies the same ones.

- `run_rules`: create, claim, commit to, park, end and control a run
- `dedup`: the dedup table; `deaths`: what the death of a worker costs a run; `inbox_rules`: signals and items
- `validation`: check what callers hand to a store; `recovery_check`: check a run after a takeover
- `lost_rows`: find rows that a journal proves were written, and that are gone or too old
- `documents`: compare-and-set, and what commits require of documents, reserve and spend in them
- `gauges`: what metrics show of a store; `counting`: what is counted, and when
- `capsules`: what a run is on its way to another store, and what becomes of it there
- `duplicates`: what journals prove to have been done twice
- `restore`: fence and question runs when a store is restored from a backup
"""
