"""Rows: the structs that stores keep, without behaviour.

- `run` (with the records of its journal), `session`, `key`, `inbox`, `log_entry`, `document`
- `bodies` reads records; `gauges`: what a store holds now, counted; `counter`: what only grows
- `capsule`: all of one run, and which runs may have changed
- `commit`: what one run writes in one transaction, and the store's verdict
- `transitions`: the table of changes of a run's state; `totals`: the totals in a run's row
"""
