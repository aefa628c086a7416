"""Code that several stores share.

- `checked_store`: the members that all stores have, and what a store's modules offer it
- `commit_rules`: what commits, or the end of a run, do to the rows; `creation`: new runs; `inbound`: signals,
  controls, answers, salvage
- `tables`: rows by name, and drafts of them; `lazy_tables`: rows that are loaded on first use
- `walk`: read and check all that a store holds, in parts; `gauges`: counts of rows, for metrics
- `rows`: rows to structs and back; `selection`: which runs a query or a worker wants
- `maintenance`: migrations, what is verified, and the order of pruning
- `sessions`: which may act, what their end does, leases also judged by our own clock
- `pool`: what an open store is to its process, and a pool of connections; `wakeups`: one thread waits for
  wake-ups; `server_clock`: the server's time, known without asking
"""
