"""A series of calls of one step in virtual time, against a scripted provider that keeps the books."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, cast

from msgspec import Struct

import ninelives as nl
from ninelives.core.model.counter import no_steps
from ninelives.engine.context import Frame
from ninelives.engine.spec.registry import Step
from ninelives.models.ways import Ways
from ninelives.testing.clock import SkippingClock
from ninelives.testing.loop import SkippingLoop

T = TypeVar("T")
End = Literal["answer", "way", "request"]


class HttpError(Exception):
    """An error as clients of HTTP raise it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code


RENEWAL_SECONDS = 5.0
"""How long a lost lease is renewed."""
ERRORS = {"way": 503, "request": 400}


class Reply(Struct, frozen=True):
    """How one request goes: how long it takes, how it ends, and how long it takes to end if cancelled."""

    seconds: float
    end: End = "answer"
    lingers: float = 0.0


class Call(Struct, frozen=True):
    """One call: how its requests go, in the order in which they are sent, and when its caller gives up."""

    replies: tuple[Reply, ...]
    after: float = 0.0
    """How long after the call before it this one begins."""
    gives_up: float | None = None


class Provider:
    """Answers as it is scripted, and keeps the books."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self.sent: Counter[int] = Counter()
        self.under_way: Counter[int] = Counter()
        self.most = self.begun = self.hedges = 0
        self.has_lease = True
        self.down: set[str] = set()
        """Ways that answer every request with 503."""
        self.shares: list[tuple[int, int]] = []
        """At each second request: how many of them so far, of how many calls."""

    async def ask(self, number: int, way: str) -> str:
        """Answer one request of a call."""
        reply = self._calls[number].replies[self.sent[number] % len(self._calls[number].replies)]
        self.sent[number] += 1
        if self.under_way[number]:
            self.hedges += 1
            self.shares.append((self.hedges, self.begun))
        self.under_way[number] += 1
        self.most = max(self.most, self.under_way[number])
        try:
            await asyncio.sleep(reply.seconds)
        except asyncio.CancelledError:
            if reply.lingers:
                await asyncio.sleep(reply.lingers)
            raise
        finally:
            self.under_way[number] -= 1
        if reply.end != "answer" or way in self.down:
            raise HttpError(ERRORS.get(reply.end, 503))
        return f"{number} {way}"


class Standing:
    """The part of an execution that is asked for; its lease is the provider's to take away."""

    sealed = None

    def __init__(self, provider: Provider) -> None:
        self._provider, self.done, self.run = provider, no_steps(), SimpleNamespace(id="run")

    @property
    def has_lease(self) -> bool:
        """Whether a request may be sent now."""
        return self._provider.has_lease

    async def require_lease(self) -> None:
        """Return once there is a lease again."""
        await asyncio.sleep(RENEWAL_SECONDS)
        self._provider.has_lease = True

    def retract(self, _: str) -> None:
        """Do nothing: no request of a series emits anything."""


class Outcome(Struct, frozen=True):
    """How a call ended: its value or error, when by its own clock, and how many requests were still there."""

    value: str | None
    error: BaseException | None
    seconds: float
    left: int
    frame: Any


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop that skips to its next timer."""
    loop = SkippingLoop(SkippingClock())
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def declared(provider: Provider, others: int, **options: Any) -> tuple[Step, tuple[Any, ...]]:
    """Return a step over a provider, with other ways, and what asks each of them."""

    def way_of(name: str) -> Any:
        async def way(number: int) -> str:
            return await provider.ask(number, name)

        way.__qualname__ = name
        return way

    own, *rest = (way_of(name) for name in ("first", "second", "third")[: others + 1])
    step = cast("Any", nl.decision(name="first", alternatives=rest, **options)(own)).__ninelives__
    return step, tuple(way.function for way in step.model_call.ways)


async def play(
    provider: Provider,
    calls: Sequence[Call],
    step: Step,
    functions: tuple[Any, ...],
    ways: Ways | None = None,
    first: int = 0,
) -> list[Outcome]:
    """Make the calls, each at its time, and return how they ended. `first` is the number of the first one."""
    loop, ways = asyncio.get_running_loop(), ways or Ways()
    execution: Any = Standing(provider)

    async def one(number: int, call: Call) -> Outcome:
        frame = Frame(cast("Any", SimpleNamespace(id=f"#first#{number}")), cast("Any", None))
        provider.begun += 1
        began, value, error = loop.time(), None, None
        try:
            async with asyncio.timeout(call.gives_up):
                value = await ways.ask(execution, step, frame, functions, (number,), {})
        except Exception as caught:
            error = caught
        return Outcome(value, error, loop.time() - began, provider.under_way[number], frame)

    tasks = []
    for number, call in enumerate(calls, start=first):
        if call.after:
            await asyncio.sleep(call.after)
        tasks.append(loop.create_task(one(number, call)))
    return list(await asyncio.gather(*tasks))
