"""The store on Redis 7 or newer, or Valkey: no modules, one hash tag per deployment.

- `store`: the class; `commits`: the write path; `transaction`, `tables`: rows for rules of `stores.shared`
- `claims`: create and claim runs; `sessions`; `lookups`: rows by name; `journals`, `recovery_log`: chains
- `run_rows`: rows of runs and their indexes; `encoding`: rows as bytes and back
- `maintenance`: measure and verify; `pruning`; `server`: connections, scripts and names of keys
"""

from ninelives.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
