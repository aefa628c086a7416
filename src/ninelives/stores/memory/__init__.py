"""The reference store, in this process's memory and lost with it; the others are tested against it."""

from ninelives.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
