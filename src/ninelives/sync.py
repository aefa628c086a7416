"""The functions that plain `def` agents call instead of awaiting. Each blocks the agent's thread.

Nothing here decides anything; see the function of the same name in `ninelives`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from msgspec import UNSET

from ninelives.engine.agent import basics, chat_history, children, signals, timers
from ninelives.engine.agent.output import emit_from_thread as emit
from ninelives.engine.context import FRAME
from ninelives.engine.run.current import current
from ninelives.engine.step import question as questions
from ninelives.engine.step import threads

__all__ = ["Child", "ask", "emit", "map", "receive", "repair_history", "sleep", "sleep_until", "spawn"]


def __dir__() -> list[str]:
    return __all__


T = TypeVar("T")
U = TypeVar("U")


def sleep(seconds: float) -> None:
    """Sleep, durably; see `ninelives.sleep`."""
    _wait("nl.sync.sleep", lambda: timers.sleep(seconds))


def sleep_until(when: datetime) -> None:
    """Sleep until a point in time, durably; see `ninelives.sleep_until`."""
    _wait("nl.sync.sleep_until", lambda: timers.sleep_until(when))


def map(step: Callable[[T], U], items: Iterable[T], *, limit: int = 10) -> list[U]:  # noqa: A001
    """Call a plain step for each item in the run's threads, at most `limit` at once; see `ninelives.map`."""

    def one(item: T) -> Coroutine[Any, Any, U]:
        return asyncio.to_thread(step, item)

    return _wait("nl.sync.map", lambda: basics.map(one, items, limit=limit))


@overload
def receive(name: str, *, type: type[T], timeout: float | None = None) -> T: ...
@overload
def receive(name: str, *, type: Any = ..., timeout: float | None = None) -> Any: ...
def receive(name: str, *, type: Any = Any, timeout: float | None = None) -> Any:
    """Return the next signal of that name; see `ninelives.receive`."""
    return _wait("nl.sync.receive", lambda: signals.receive(name, type=type, timeout=timeout))


@overload
def ask(question: str, *, to: str | None = None, timeout: float | None = None, default: str = ...) -> str: ...
@overload
def ask(
    question: str,
    options: None = None,
    *,
    type: type[T],
    to: str | None = None,
    timeout: float | None = None,
    default: T = ...,
) -> T: ...
@overload
def ask(
    question: str,
    options: Sequence[T] | None = None,
    *,
    type: Any = ...,
    to: str | None = None,
    timeout: float | None = None,
    default: Any = ...,
) -> T: ...
def ask(
    question: str,
    options: Any = None,
    *,
    type: Any = UNSET,
    to: str | None = None,
    timeout: float | None = None,
    default: Any = UNSET,
) -> Any:
    """Ask a person and return the answer; see `ninelives.ask`."""
    request = {"options": options, "type": type, "to": to, "timeout": timeout, "default": default}
    return _wait("nl.sync.ask", lambda: questions.ask(question, **request))


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


def repair_history(messages: Sequence[Mapping[str, Any]], *, run: str | None = None) -> list[dict[str, Any]]:
    """Return a chat history in which every tool call has its result; see `ninelives.repair_history`."""
    return _wait("nl.sync.repair_history", lambda: chat_history.repair_history(messages, run=run))


def _wait(what: str, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    execution = current(what)
    if execution is not None:
        threads.refuse_on_loop(execution, what)
        if FRAME.get() is None:
            return threads.wait(execution, what, coroutine)
    return asyncio.run(coroutine())
