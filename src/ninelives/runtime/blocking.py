"""Handles for plain code: each method calls that of `Run` or `InboxItem` through a portal, and waits.

A portal (`Twin._do`) says where the coroutine runs: on an event loop in a thread (here), or on that of a
sandbox (`testing.handles`). `waits` makes a plain method of an async one, with its parameters, types and
documentation, so that the two cannot differ. A test checks that no method is missing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ninelives.core.journal.answers import ItemBody
from ninelives.core.journal.output import Output
from ninelives.core.model.inbox import ItemKind
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
Async = TypeVar("Async")
Plain = TypeVar("Plain", bound="Twin[Any]")


class Twin(Generic[Async]):
    """A plain object that stands for an async one."""

    def _do(self, work: Callable[[Async], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the async object, wait for it, and return its result. Raises what it raises."""
        raise NotImplementedError


def waits(
    method: Callable[Concatenate[Async, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Twin[Async], P], T]:
    """Return the plain twin of an async method."""

    @wraps(method)
    def call(self: Twin[Async], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(lambda target: method(target, *args, **kwargs))

    return call


def waits_for(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], made: Callable[[Plain, T], U]
) -> Callable[Concatenate[Plain, P], U]:
    """Return the plain twin of an async method whose result has a plain twin too: `made(self, result)`."""

    @wraps(method)
    def call(self: Plain, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return made(self, self._do(lambda target: method(target, *args, **kwargs)))

    return call


class PlainRun(Twin[Run]):
    """What all plain handles to a run have; see `Run`."""

    id: str
    status = waits(Run.status)
    history = waits(Run.history)
    checkpoint = waits(Run.checkpoint)
    cancel = waits(Run.cancel)
    pause = waits(Run.pause)
    resume = waits(Run.resume)
    retry = waits(Run.retry)


class PlainItem(Twin[InboxItem]):
    """What all plain inbox items have; see `InboxItem`. All its fields are those of `item`."""

    item: InboxItem
    approve = waits(InboxItem.approve)
    deny = waits(InboxItem.deny)
    answer = waits(InboxItem.answer)
    settle = waits(InboxItem.settle)
    retry = waits(InboxItem.retry)
    fail = waits(InboxItem.fail)

    def __repr__(self) -> str:
        return repr(self.item)

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id

    @property
    def run(self) -> str:
        """The id of the run that waits."""
        return self.item.run

    @property
    def kind(self) -> ItemKind:
        """Why a person is asked."""
        return self.item.kind

    @property
    def asked(self) -> ItemBody:
        """The request: its text, arguments, key, options and evidence."""
        return self.item.asked


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


class BlockingRun(PlainRun):
    """A handle to a run, for plain code; see `Run`."""

    def __init__(self, loop: LoopThread, run: Run) -> None:
        self._loop, self._run, self.id = loop, run, run.id

    def _do(self, work: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
        return self._loop.wait(work(self._run))

    def _forked(self, run: Run) -> BlockingRun:
        return BlockingRun(self._loop, run)

    result = waits(Run.result)
    signal = waits(Run.signal)
    fork = waits_for(Run.fork, _forked)

    def stream(self, offset: int = 0, *, type: Any = Any) -> Iterator[Output]:
        """Yield the run's output; see `Run.stream`."""
        items = self._run.stream(offset, type=type)
        with suppress(StopAsyncIteration):
            while True:
                yield self._loop.wait(_next(items))


async def _next(items: AsyncIterator[T]) -> T:
    # run_coroutine_threadsafe takes a coroutine, and anext() returns another kind of awaitable.
    return await anext(items)


class BlockingItem(PlainItem):
    """An inbox item, for plain code; see `InboxItem`."""

    def __init__(self, loop: LoopThread, item: InboxItem) -> None:
        self._loop, self.item = loop, item

    def _do(self, work: Callable[[InboxItem], Coroutine[Any, Any, T]]) -> T:
        return self._loop.wait(work(self.item))
