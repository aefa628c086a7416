"""The reference store, in this process's memory and lost with it; the others are tested against it.

- `store`: the class; `tables`: all that it holds, and a transaction's view of it
- `claims`: create and claim runs; `sessions`; `lookups`: rows by name; `journals`, `recovery_log`: chains
- `maintenance`: measure, verify, prune
"""

from ninelives.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
