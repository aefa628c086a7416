"""What answers model calls: steps that declare `alternatives=`, `hedge=` or `cache=`.

The engine asks it in place of the step's function, inside the step's frame: `nl.key()` is the same in every
way, retries are around it, and the time limit holds for the whole. It sets `frame.answered`, which is written
with the outcome. Replay asks it nothing. If we die before the outcome is durable, the next worker asks again,
all ways from the start; if we die after, only what `recorded` does is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ninelives.core.errors import InvariantViolation
from ninelives.engine.context import Frame, Running
from ninelives.engine.spec.registry import Step

Asks = Callable[..., Awaitable[Any]]
"""A way to ask, given the call's arguments. It is awaited on the run's loop; its code may run elsewhere."""


class AsksModels(Protocol):
    """What a process knows of model calls. See `ninelives.models`. All methods run on the run's loop."""

    async def answer(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        ways: tuple[Asks, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the answer of one attempt; set `frame.answered`, also when it fails.

        `ways` are the callables of `step.model_call.ways`, in their order.
        """

    def recorded(self, execution: Running, step: Step, frame: Frame) -> None:
        """Note an outcome that is durable now; `frame.data` is its value. Never raises or waits."""

    def close(self) -> None:
        """End what is done in the background; called in a thread when the runtime ends."""


class Asking:
    """The place of what answers a runtime's model calls. It is made when the first such step is executed."""

    __slots__ = ("_asks", "_make")

    def __init__(self, make: Callable[[], AsksModels] | None = None) -> None:
        self._make = make
        self._asks: AsksModels | None = None

    def get(self) -> AsksModels:
        """Return what answers; make it the first time."""
        if self._asks is None:
            if self._make is None:
                raise InvariantViolation("model calls are executed where nothing answers them")
            self._asks = self._make()
        return self._asks

    def close(self) -> None:
        """End it, if it was made."""
        if self._asks is not None:
            self._asks.close()
