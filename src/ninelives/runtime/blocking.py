"""The runtime for plain code: an event loop in a thread of its own, and calls that wait for it.

Nothing here decides anything: each method hands the same call to `Runtime` or `Run` and waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import UNSET

from ninelives.core.journal.output import Output
from ninelives.core.model.run import RunRow as Row
from ninelives.core.model.run import State
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import Runtime
from ninelives.views.checkpoint import Checkpoint
from ninelives.views.history import Entry

T = TypeVar("T")


class BlockingRun:
    """A handle to a run, for plain code; see `Run`."""

    def __init__(self, runtime: BlockingRuntime, run: Run) -> None:
        self._runtime, self._run, self.id = runtime, run, run.id

    def status(self) -> State:
        """Return the run's state."""
        return self._runtime.wait(self._run.status())

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the run's end and return its result."""
        return self._runtime.wait(self._run.result(timeout))

    def history(self) -> list[Entry]:
        """Return all that is recorded of the run."""
        return self._runtime.wait(self._run.history())

    def stream(self, offset: int = 0, *, type: Any = Any) -> Iterator[Output]:
        """Give what the run emits; see `Run.stream`."""
        items = self._run.stream(offset, type=type)
        with suppress(StopAsyncIteration):
            while True:
                yield self._runtime.wait(_next(items))

    def checkpoint(self) -> Checkpoint:
        """Return where the run is."""
        return self._runtime.wait(self._run.checkpoint())

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal; see `Run.signal`."""
        self._runtime.wait(self._run.signal(name, value, id=id))

    def cancel(self) -> None:
        """Ask for the run's end; see `Run.cancel`."""
        self._runtime.wait(self._run.cancel())

    def pause(self) -> None:
        """Let the run stop before its next step or wait."""
        self._runtime.wait(self._run.pause())

    def resume(self) -> None:
        """Let a paused run go on."""
        self._runtime.wait(self._run.resume())

    def fork(self, at: str | int, *, id: str | None = None, after: str = "ask", **edited: Any) -> BlockingRun:
        """Make a run that shares this one's records up to a step; `result=` edits it. See `Run.fork`."""
        return BlockingRun(
            self._runtime, self._runtime.wait(self._run.fork(at, id=id, after=after, **edited))
        )

    def retry(self) -> None:
        """Let a failed run go on from the step that failed."""
        self._runtime.wait(self._run.retry())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


class BlockingItem:
    """An inbox item, for plain code; see `InboxItem`. What it shows is `item`'s."""

    def __init__(self, runtime: BlockingRuntime, item: InboxItem) -> None:
        self._runtime, self.item, self.id = runtime, item, item.id

    def approve(self, *, by: str | None = None, note: str = "") -> None:
        """Say yes to exactly what the item shows."""
        self._runtime.wait(self.item.approve(by=by, note=note))

    def deny(self, *, by: str | None = None, note: str = "") -> None:
        """Say no."""
        self._runtime.wait(self.item.deny(by=by, note=note))

    def answer(self, value: Any, *, by: str | None = None, note: str = "") -> None:
        """Answer a question."""
        self._runtime.wait(self.item.answer(value, by=by, note=note))

    def settle(self, *, happened: bool, result: Any = UNSET, by: str | None = None, note: str = "") -> None:
        """Say what became of an action in doubt."""
        self._runtime.wait(self.item.settle(happened=happened, result=result, by=by, note=note))

    def retry(self, *, by: str | None = None, note: str = "") -> None:
        """Let the run go on."""
        self._runtime.wait(self.item.retry(by=by, note=note))

    def fail(self, *, by: str | None = None, note: str = "") -> None:
        """Give the run up."""
        self._runtime.wait(self.item.fail(by=by, note=note))


class BlockingRuntime:
    """A runtime for plain code; use it as `with nl.Runtime(...).sync() as rt`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ninelives-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.wait(self._runtime.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait(self._runtime.__aexit__(kind, error, trace))
        self._stop()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for something that the runtime's own loop does."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def start(
        self,
        agent: Any,
        *args: Any,
        id: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> BlockingRun:
        """Make a run durable; see `Runtime.start`."""
        starting = self._runtime.start(
            agent, *args, id=id, kwargs=kwargs, delay=delay, priority=priority, labels=labels
        )
        return BlockingRun(self, self.wait(starting))

    def run(
        self, agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Start or resume a run, work on it here, and return its result."""
        return self.wait(self._runtime.run(agent, *args, id=id, kwargs=kwargs))

    def work(self, concurrency: int = 100, *, until_idle: bool = False) -> None:
        """Be a worker."""
        self.wait(self._runtime.work(concurrency, until_idle=until_idle))

    def get(self, id: str) -> BlockingRun:
        """Return a handle to a run."""
        return BlockingRun(self, self.wait(self._runtime.get(id)))

    def list(
        self,
        status: State | str | None = None,
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        after: int | None = None,
    ) -> list[Row]:
        """Return the rows of runs, newest first."""
        return self.wait(self._runtime.list(status, agent, labels, limit, after))

    def inbox(
        self, run: str | None = None, *, answered: bool = False, limit: int = 100
    ) -> Sequence[BlockingItem]:
        """Return what waits for a person; see `Runtime.inbox`."""
        found = self.wait(self._runtime.inbox(run, answered=answered, limit=limit))
        return [BlockingItem(self, item) for item in found]

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
