"""The functions that plain `def` agents call instead of awaiting. Each blocks the agent's thread.

Nothing here decides anything; see the function of the same name in `ninelives`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from ninelives.engine.agent import basics, chat_history, children, signals, timers
from ninelives.engine.agent import declassify as declassifying
from ninelives.engine.agent.output import emit_from_thread as emit
from ninelives.engine.context import FRAME
from ninelives.engine.run.current import current
from ninelives.engine.step import question, threads

__all__ = [
    "Child",
    "ask",
    "declassify",
    "emit",
    "map",
    "receive",
    "repair_history",
    "sleep",
    "sleep_until",
    "spawn",
]


def __dir__() -> list[str]:
    return __all__


P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


def _wait(what: str, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    execution = current(what)
    if execution is not None:
        threads.refuse_on_loop(execution, what)
        if FRAME.get() is None:
            return threads.wait(execution, what, coroutine)
    return asyncio.run(coroutine())


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a plain function that waits for an async one; type checkers keep its overloads."""
    name, what = function.__name__, f"nl.sync.{function.__name__}"

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return _wait(what, lambda: function(*args, **kwargs))

    # Not functools.wraps: its __wrapped__ would make the call look async.
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Block until `ninelives.{name}` returns; see there."
    vars(call)["__signature__"] = inspect.signature(function)
    return call


sleep = _blocking(timers.sleep)
sleep_until = _blocking(timers.sleep_until)
receive = _blocking(signals.receive)
ask = _blocking(question.ask)
repair_history = _blocking(chat_history.repair_history)
declassify = _blocking(declassifying.declassify)


def map(step: Callable[[T], U], items: Iterable[T], *, limit: int = 10) -> list[U]:  # noqa: A001
    """Call a plain step for each item in the run's threads, at most `limit` at once; see `ninelives.map`."""

    def one(item: T) -> Coroutine[Any, Any, U]:
        return asyncio.to_thread(step, item)

    return _wait("nl.sync.map", lambda: basics.map(one, items, limit=limit))


class Child:
    """A handle to a child run, for plain agents; see `ninelives.spawn`."""

    def __init__(self, child: children.Child) -> None:
        self._child, self.id = child, child.id

    def result(self) -> Any:
        """Wait durably until the child ends and return its result. Raises as `await child.result()` does."""
        return _wait("child.result", self._child.result)

    def cancel(self) -> None:
        """Request the child's cancellation; no effect on a child that has ended."""
        _wait("child.cancel", self._child.cancel)


def spawn(agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None) -> Child:
    """Start a child run; see `ninelives.spawn`."""
    return Child(_wait("nl.sync.spawn", lambda: children.spawn(agent, *args, id=id, kwargs=kwargs)))
