"""What handles need of a runtime. `Runtime` implements it, and handles need not import `Runtime`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ninelives.store import Store

T = TypeVar("T")


class StoreCalls(Protocol):
    """Calls of a store from the event loop, and waits for its wake-ups."""

    @property
    def store(self) -> Store:
        """The store."""

    async def call(self, work: Callable[..., T], *values: Any) -> T:
        """Call `work(store, *values)` in a thread. Raises what it raises."""

    async def until(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Return the first result of `condition` that is not None; checked again at every wake-up."""

    async def until_output(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Do the same as `until`, checked again when a run emits output or ends."""
