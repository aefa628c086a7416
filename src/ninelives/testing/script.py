"""A scripted model: a list of answers, failures and delays, and a log of its calls.

A step that is executed again after a crash gets the same answer again. Only a new call or a new attempt uses
up the next answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ninelives.core.errors import Permanent
from ninelives.engine.context import FRAME, Frame


class Delay(Struct, frozen=True):
    """A delayed answer or failure; see `after`."""

    seconds: float
    answer: Any


def after(seconds: float, answer: Any) -> Delay:
    """Delay an answer or a failure; in a sandbox the time is skipped."""
    return Delay(seconds, answer)


class ScriptedCall(Struct, frozen=True):
    """One call of a scripted model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Script:
    """A model with fixed answers: `model = Script("refund", TimeoutError("busy"), "done")`.

    Call it from a decision: `await model(prompt)`, or `model.ask(prompt)` in plain code. A value is returned,
    an exception is raised, and a callable is called with the same arguments.
    """

    def __init__(self, *answers: Any) -> None:
        self._answers = answers
        self._positions: dict[object, int] = {}
        self._within: Counter[tuple[Frame, int]] = Counter()
        self._lock = threading.Lock()
        self.calls: list[ScriptedCall] = []
        """All calls, including repetitions after a crash."""

    @property
    def asked(self) -> int:
        """The number of answers used up."""
        return len(self._positions)

    @property
    def left(self) -> int:
        """The number of answers left."""
        return len(self._answers) - self.asked

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next answer. Raises Permanent when none is left."""
        answer = self._next(args, kwargs)
        if isinstance(answer, Delay):
            await asyncio.sleep(answer.seconds)
            answer = answer.answer
        return _deliver(answer, args, kwargs)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next answer, in plain code; delays are ignored."""
        answer = self._next(args, kwargs)
        return _deliver(answer.answer if isinstance(answer, Delay) else answer, args, kwargs)

    def _next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            position = self._positions.setdefault(self._caller(), len(self._positions))
            self.calls.append(ScriptedCall(args, kwargs))
        if position >= len(self._answers):
            raise Permanent(
                f"the script has {len(self._answers)} answers, but was called once more: {args} {kwargs}"
            )
        return self._answers[position]

    def _caller(self) -> object:
        """Identify the caller, stable across crashes: the step's key, its attempt, and the call's number."""
        frame = FRAME.get()
        if frame is None:
            return object()
        self._within[frame, frame.attempt] += 1
        return frame.position.key(), frame.attempt, self._within[frame, frame.attempt]


def _deliver(answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
        raise answer
    return answer(*args, **kwargs) if callable(answer) else answer
