"""Code that several stores share.

- `commit_rules`: what one commit, or the end of a run, does to the rows; `tables`: rows by name, and
  drafts of them
- `creation`: a batch of new runs; `rows`: rows to structs and back; `lazy_table`: a server's rows as a
  table
- `maintenance`: migrations, what is verified, and the order of pruning
- `sessions`: which may act, what their end does, leases also judged by our own clock
- `pool`: what an open store is to its process, and a pool of connections; `wakeups`: one thread waits for
  wake-ups; `server_clock`: the server's time, known without asking
"""
