"""The reference store: everything is in this process's memory and is lost with it. The other stores are
tested against it."""

from ninelives.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
