"""Whether a store exists at a URL. Read-only callers ask this first: opening a store would create it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ninelives.stores import url as urls


def is_there(url: str) -> bool:
    """Return whether a store exists. For memory and for unknown URLs it is true: opening them says more.

    Raises StoreError when the server cannot be reached.
    """
    path = urls.path_of(url)
    if path is not None:
        # An anchor without a database means that the store is lost; opening it reports that.
        return Path(path).exists() or Path(f"{path}-anchor").exists()
    if not urls.is_server(url):
        return True
    try:
        return bool(import_module(f"{urls.backend_of(url)}.server.schema").is_there(url))
    except ModuleNotFoundError:
        return True  # the driver is missing; opening the store says which one
