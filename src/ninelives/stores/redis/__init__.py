"""The store on Redis 7 or newer, or Valkey: no modules, one hash tag per deployment."""

from ninelives.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
