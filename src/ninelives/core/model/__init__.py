"""Rows: the structs that stores keep, without behaviour.

- `run` (with the records of its journal), `session`, `key`, `inbox`, `log_entry`
- `commit`: what one run writes in one transaction, and the store's verdict
- `transitions`: the states of a run and what may follow what; `totals`: what a run's row sums up of its
  journal
"""
