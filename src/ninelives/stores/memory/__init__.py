"""The reference store: everything in this process's memory, gone with it. The oracle of the other
stores."""

from ninelives.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
