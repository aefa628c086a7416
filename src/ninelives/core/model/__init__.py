"""Rows: the structs that stores keep, without behaviour.

- `run` (with the records of its journal), `session`, `key`, `inbox`, `log_entry`; `bodies` reads records
- `commit`: what one run writes in one transaction, and the store's verdict
- `transitions`: the table of changes of a run's state; `totals`: the totals in a run's row
"""
