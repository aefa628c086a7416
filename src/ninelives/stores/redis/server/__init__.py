"""The server: connections, scripts, names of keys, and whether it can be trusted.

- `pool`, `connection`, `address`, `server_checks`; `lost_writes`: a server that came back without what it
  had acknowledged
- `scripts` (with `scripts/`), `key_names`, `schema`, `wakeups`
"""
