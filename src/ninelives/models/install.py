"""Makes what answers the model calls of a runtime. The runtime imports it when the first one is made."""

from __future__ import annotations

from typing import Any, cast

from ninelives.core.clock import Clock
from ninelives.engine.context import Frame, Running
from ninelives.engine.model_calls import Asks, AsksModels
from ninelives.engine.spec.registry import Step
from ninelives.models.cache import AnswerCache
from ninelives.models.entries import CacheStore
from ninelives.models.ways import Ways
from ninelives.store import Store


def make_asks(store: Store, clock: Clock) -> AsksModels:
    """Return what the executions of a runtime share."""
    return Answers(store, clock)


class Answers:
    """Answers model calls: an `engine.model_calls.AsksModels`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock, self._ways = store, clock, Ways()
        self._cache = AnswerCache(cast(CacheStore, store))

    async def answer(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        ways: tuple[Asks, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the answer of one attempt: a cached one, else that of the ways."""
        cache = step.model_call.cache if step.model_call is not None else None
        if cache is not None:
            hit = await self._cache.look_up(execution, step, frame, cache, args, kwargs)
            if hit is not None:
                return hit.value
        return await self._ways.ask(execution, step, frame, ways, args, kwargs)

    def recorded(self, execution: Running, step: Step, frame: Frame) -> None:
        """Note an outcome that is durable now."""
        cache = step.model_call.cache if step.model_call is not None else None
        if cache is not None:
            self._cache.recorded(execution, step, frame, cache)

    def close(self) -> None:
        """End what is done in the background."""
        self._cache.close()
