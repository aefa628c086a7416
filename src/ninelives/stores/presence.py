"""Whether a URL leads to a store that is there. Who only looks asks this first: opening a store makes one."""

from __future__ import annotations

from pathlib import Path

from ninelives.stores import url as urls


def is_there(url: str) -> bool:
    """Tell whether there is a store; of a URL that names none, and of memory, opening it says more.

    Raises StoreError where a server cannot be asked.
    """
    path = urls.path_of(url)
    if path is not None:
        # An anchor alone tells of a store that is lost, and opening it says so.
        return Path(path).exists() or Path(f"{path}-anchor").exists()
    if not urls.is_server(url):
        return True
    try:
        if urls.backend_of(url).endswith("postgres"):
            from ninelives.stores.postgres.server.presence import is_there as is_on_postgres

            return is_on_postgres(url)
        from ninelives.stores.redis.server.presence import is_there as is_on_redis

        return is_on_redis(url)
    except ModuleNotFoundError:
        return True  # the driver is missing, and opening it says which
