"""Handles for plain code: an event loop in a thread, and calls that wait for it.

Nothing here decides anything: each method passes the same call to `Run` or `InboxItem` and waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import UNSET

from ninelives.core.journal.output import Output
from ninelives.core.model.run import State
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.views.checkpoint import Checkpoint
from ninelives.views.records_text import Entry

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ninelives-loop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def stop(self) -> None:
        """Stop the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingRun:
    """A handle to a run, for plain code; see `Run`."""

    def __init__(self, loop: LoopThread, run: Run) -> None:
        self._loop, self._run, self.id = loop, run, run.id

    def status(self) -> State:
        """Return the run's state."""
        return self._loop.wait(self._run.status())

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the run ends and return its result."""
        return self._loop.wait(self._run.result(timeout))

    def history(self) -> list[Entry]:
        """Return every record of the run."""
        return self._loop.wait(self._run.history())

    def stream(self, offset: int = 0, *, type: Any = Any) -> Iterator[Output]:
        """Yield the run's output; see `Run.stream`."""
        items = self._run.stream(offset, type=type)
        with suppress(StopAsyncIteration):
            while True:
                yield self._loop.wait(_next(items))

    def checkpoint(self) -> Checkpoint:
        """Return what is durable of the run now."""
        return self._loop.wait(self._run.checkpoint())

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal; see `Run.signal`."""
        self._loop.wait(self._run.signal(name, value, id=id))

    def cancel(self) -> None:
        """Request the run's cancellation; see `Run.cancel`."""
        self._loop.wait(self._run.cancel())

    def pause(self) -> None:
        """Stop the run before its next step or wait."""
        self._loop.wait(self._run.pause())

    def resume(self) -> None:
        """Let a paused run continue."""
        self._loop.wait(self._run.resume())

    def fork(self, at: str | int, *, id: str | None = None, after: str = "ask", **edited: Any) -> BlockingRun:
        """Create a run that shares this run's records up to a step; `result=` edits it. See `Run.fork`."""
        return BlockingRun(self._loop, self._loop.wait(self._run.fork(at, id=id, after=after, **edited)))

    def retry(self) -> None:
        """Resume a failed run at the step that failed."""
        self._loop.wait(self._run.retry())


async def _next(items: AsyncIterator[T]) -> T:
    # run_coroutine_threadsafe takes a coroutine, and anext() returns another kind of awaitable.
    return await anext(items)


class BlockingItem:
    """An inbox item, for plain code; see `InboxItem`. Its fields are those of `item`."""

    def __init__(self, loop: LoopThread, item: InboxItem) -> None:
        self._loop, self.item, self.id = loop, item, item.id

    def approve(self, *, by: str | None = None, note: str = "") -> None:
        """Approve exactly what the item shows."""
        self._loop.wait(self.item.approve(by=by, note=note))

    def deny(self, *, by: str | None = None, note: str = "") -> None:
        """Deny what the item shows."""
        self._loop.wait(self.item.deny(by=by, note=note))

    def answer(self, value: Any, *, by: str | None = None, note: str = "") -> None:
        """Answer a question."""
        self._loop.wait(self.item.answer(value, by=by, note=note))

    def settle(self, *, happened: bool, result: Any = UNSET, by: str | None = None, note: str = "") -> None:
        """Settle an action in doubt; see `InboxItem.settle`."""
        self._loop.wait(self.item.settle(happened=happened, result=result, by=by, note=note))

    def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Let the run continue."""
        self._loop.wait(self.item.retry(by=by, note=note))

    def fail(self, *, by: str | None = None, note: str = "") -> None:
        """End the run as failed."""
        self._loop.wait(self.item.fail(by=by, note=note))
