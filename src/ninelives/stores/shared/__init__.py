"""Code that several stores share.

- `checked_store`: the members that all stores have; `rooms`: what a store's modules offer it
- `commit_rules`: what commits, or the end of a run, do to the rows; `creation`: new runs; `inbound`: signals,
  controls, answers, salvage
- `tables`: rows by name, and drafts of them; `lazy_tables`: rows that are loaded on first use
- `rows`: rows to structs and back; `selection`: which runs a query or a worker wants
- `wakeups`: one thread waits for a server's wake-ups; `lease_witness`: leases also judged by our own clock
"""
