"""Planted bugs: each is put into the engine in this process, and the judge must turn red."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ninelives.core.journal.replay import Replay
from ninelives.core.model.run import Kind, Record
from ninelives.engine.run import quiescence
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.run.execution import Execution
from ninelives.engine.step import resumable

MUTANTS: dict[str, Callable[[], Iterator[None]]] = {}


def _mutant(made: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    MUTANTS[made.__name__] = made
    return made


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug, and dig it out again."""
    yield from MUTANTS[name]()


@contextmanager
def _put(owner: object, name: str, new: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, original)


@_mutant
def latest_first() -> Iterator[None]:
    """Recorded outcomes are told from the end of the journal."""

    async def recorded(self: Any, found: Any) -> None:
        turn = self._loop.create_future()
        heapq.heappush(self.due, (-found.seq, id(turn), turn))
        self.check_soon()
        await turn

    with _put(Delivery, "recorded", recorded):
        yield


@_mutant
def as_asked() -> Iterator[None]:
    """Recorded outcomes are told in the order in which they are asked for, at once."""

    async def recorded(self: Any, found: Any) -> None:
        return

    with _put(Delivery, "recorded", recorded):
        yield


@_mutant
def never_at_rest() -> Iterator[None]:
    """Nobody waits until the code has come to rest."""
    with _put(quiescence, "busy_runs", lambda _: frozenset()):
        yield


@_mutant
def fresh_at_once() -> Iterator[None]:
    """Bodies start while recorded outcomes are still to be told."""

    async def begin(self: Any, *_: Any) -> None:
        return

    async def seek(self: Any, asking: Any) -> Any:
        claims = self._execution.claims
        found = claims.earliest_match(asking.call)
        return claims.take(found[1]) if found is not None else None

    with _put(Delivery, "fresh", begin), _put(Delivery, "begin", begin), _put(Delivery, "seek", seek):
        yield


@_mutant
def no_barrier() -> Iterator[None]:
    """Actions start before what they rest on is durable."""

    async def barrier(self: Any, **_: Any) -> None:
        return

    with _put(Execution, "barrier", barrier):
        yield


@_mutant
def told_too_early() -> Iterator[None]:
    """Outcomes are told before they are durable, whatever the step; and actions do not wait."""

    async def durable(self: Any, written: Any) -> Any:
        return None

    async def barrier(self: Any, **_: Any) -> None:
        return

    with _put(Execution, "durable", durable), _put(Execution, "barrier", barrier):
        yield


@_mutant
def not_rounded() -> Iterator[None]:
    """The first execution returns what the body returned, not what the record says."""
    original = resumable.execute

    async def execute(execution: Any, step: Any, fingerprint: Any, position: Any, body: Any) -> Any:
        raw: list[Any] = []

        async def watched() -> Any:
            raw.append(await body())
            return raw[-1]

        await original(execution, step, fingerprint, position, watched)
        return raw[-1]

    with _put(resumable, "execute", execute):
        yield


@_mutant
def not_withdrawn() -> Iterator[None]:
    """Cancelled steps are not recorded."""
    original = Execution.note

    def note(self: Any, kind: Kind, *rest: Any) -> None:
        if kind is not Kind.WITHDRAWN:
            original(self, kind, *rest)

    with _put(Execution, "note", note):
        yield


@_mutant
def withdrawn_with_a_value() -> Iterator[None]:
    """Cancelled steps are recorded as if they had given something."""
    original = Execution.note

    def note(self: Any, kind: Kind, step: str, body: bytes, *facts: Any) -> None:
        if kind is Kind.WITHDRAWN:
            body = body[:-1] + b',"v":0}'
            kind = Kind.RESULT
        original(self, kind, step, body, *facts)

    with _put(Execution, "note", note):
        yield


@_mutant
def forgotten() -> Iterator[None]:
    """One recorded outcome in three is not found, so its step is executed again."""
    original = Replay._read_outcome

    def read(self: Any, record: Record) -> None:
        if record.seq % 3:
            original(self, record)

    with _put(Replay, "_read_outcome", read):
        yield


@_mutant
def key_per_life() -> Iterator[None]:
    """The key depends on the epoch."""
    from ninelives.engine.context import StepPosition

    original = StepPosition.key
    with _put(StepPosition, "key", lambda self: f"{original(self)}:{self.execution.run.epoch}"):
        yield


@_mutant
def live_unordered() -> Iterator[None]:
    """Live outcomes are told as they become durable, without a place in the order."""

    async def live(self: Any, turn: Any, *, is_own: bool = True) -> None:
        turn.delivered.cancel()

    with _put(Delivery, "live", live):
        yield


@_mutant
def drawn_anew() -> Iterator[None]:
    """Every life draws its own random numbers."""
    original = Execution.derived

    def derived(self: Execution, position: Any) -> Any:
        made = original(self, position)
        made.seed(f"{made.random()}:{self.run.epoch}")
        return made

    with _put(Execution, "derived", derived):
        yield
