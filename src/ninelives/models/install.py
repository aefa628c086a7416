"""Makes what answers the model calls of a runtime. The runtime imports it when the first one is made."""

from __future__ import annotations

from typing import Any

from ninelives.core.clock import Clock
from ninelives.engine.context import Frame, Running
from ninelives.engine.model_calls import Asks, AsksModels
from ninelives.engine.spec.registry import Step
from ninelives.models.ways import Ways
from ninelives.store import Store


def make_asks(store: Store, clock: Clock) -> AsksModels:
    """Return what the executions of a runtime share."""
    return Answers(store, clock)


class Answers:
    """Answers model calls: an `engine.model_calls.AsksModels`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock, self._ways = store, clock, Ways()

    async def answer(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        ways: tuple[Asks, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the answer of one attempt."""
        return await self._ways.ask(execution, step, frame, ways, args, kwargs)

    def recorded(self, execution: Running, step: Step, frame: Frame, value: Any) -> None:
        """Note an outcome that is durable now."""

    def close(self) -> None:
        """End what is done in the background."""
