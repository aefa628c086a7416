"""Verification: what in the audit log, its documents and the runs is not as it was written.

- `verify`: all of it, as a report
- `log_walk`: the entries, the tree and the documents beside it, and anchored tree heads
- `run_checks`: the store's runs, and what the log says of them
- `effects`: starts without a permitting verdict
"""
