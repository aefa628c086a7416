"""A scripted model: answers, failures and delays in order, and what it was asked.

A step that is executed again after a crash is told again what it was told: the script goes on only with a new
call or a new attempt, as a model that was asked once would have answered once.
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
    """An answer, or a failure, that takes its time; see `after`."""

    seconds: float
    answer: Any


def after(seconds: float, answer: Any) -> Delay:
    """Give an answer, or raise a failure, only after a time; in a sandbox it is skipped."""
    return Delay(seconds, answer)


class Call(Struct, frozen=True):
    """One call of a scripted model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Script:
    """A model that says what it is told to: `model = Script("refund", TimeoutError("busy"), "done")`.

    Call it from a decision: `await model(prompt)`, or `model.ask(prompt)` in plain code. A value is answered,
    an exception is raised, and a callable is asked with the same arguments.
    """

    def __init__(self, *answers: Any) -> None:
        self._answers = answers
        self._places: dict[object, int] = {}
        self._within: Counter[tuple[Frame, int]] = Counter()
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        """Every call, repetitions after a crash included."""

    @property
    def asked(self) -> int:
        """How many answers have been used up."""
        return len(self._places)

    @property
    def left(self) -> int:
        """How many answers are left."""
        return len(self._answers) - self.asked

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give the next answer. Raises Permanent when there is none left."""
        answer = self._next(args, kwargs)
        if isinstance(answer, Delay):
            await asyncio.sleep(answer.seconds)
            answer = answer.answer
        return _told(answer, args, kwargs)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        """Give the next answer, in plain code, where nothing is delayed."""
        answer = self._next(args, kwargs)
        return _told(answer.answer if isinstance(answer, Delay) else answer, args, kwargs)

    def _next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            place = self._places.setdefault(self._who(), len(self._places))
            self.calls.append(Call(args, kwargs))
        if place >= len(self._answers):
            raise Permanent(
                f"the script has {len(self._answers)} answers, and is asked for one more: {args} {kwargs}"
            )
        return self._answers[place]

    def _who(self) -> object:
        """Name who asks, alike in every life: the step's key, its attempt, and the number of the question."""
        frame = FRAME.get()
        if frame is None:
            return object()
        self._within[frame, frame.attempt] += 1
        return frame.place.key(), frame.attempt, self._within[frame, frame.attempt]


def _told(answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
        raise answer
    return answer(*args, **kwargs) if callable(answer) else answer
