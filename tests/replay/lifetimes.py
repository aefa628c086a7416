"""Two lives of a run, by the public face only: the first is stopped at a step, the second goes on.

A worker that is told to stop and one that is killed leave the same state behind, so this is a crash, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import ninelives as nl
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.run import Kind
from ninelives.core.model.session import Cause, Evidence
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore

T = TypeVar("T")
DEADLINE_SECONDS = 20.0


class QuickStore(MemoryStore):
    """A store whose waits are short, so that leaving a runtime is quick."""

    def __init__(self) -> None:
        super().__init__(SystemClock())

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Wait a moment."""
        return super().wait_for_work(min(timeout_seconds, 0.01))

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Wait a moment."""
        return super().wait_for_output(min(timeout_seconds, 0.01))


class Stage:
    """Where the first life stops: at the n-th call of `stop_here`, which then never returns."""

    def __init__(self) -> None:
        self.is_second = False
        self.reached: asyncio.Event | None = None
        self.executed: list[Any] = []

    def did(self, what: Any) -> Any:
        """Note that a body was executed."""
        self.executed.append(what)
        return what

    async def stop_here(self) -> None:
        """Stand still in the first life; in the second, go on."""
        if not self.is_second and self.reached is not None:
            self.reached.set()
            await asyncio.Event().wait()


def run_async(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine under a deadline."""

    async def limited() -> T:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await main()

    return asyncio.run(limited())


async def first_life(stage: Stage, store: Store, agent: Any, *args: Any, id: str = "run") -> None:
    """Work on a run until it reaches the stage's stop, then leave it."""
    stage.reached = asyncio.Event()
    async with nl.Runtime(store) as rt:
        await rt.start(agent, *args, id=id)
        working = asyncio.create_task(rt.work())
        await stage.reached.wait()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    stage.is_second = True
    stage.executed.clear()


async def second_life(store: Store, agent: Any, *args: Any, id: str = "run") -> Any:
    """Go on with a run, to its end."""
    async with nl.Runtime(store) as rt:
        return await rt.run(agent, *args, id=id)


def twice(stage: Stage, agent: Any, *args: Any, store: Store | None = None) -> Any:
    """Live twice; returns the result."""
    kept = store or QuickStore()

    async def main() -> Any:
        await first_life(stage, kept, agent, *args)
        return await second_life(kept, agent, *args)

    return run_async(main)


def once(agent: Any, *args: Any, store: Store | None = None, id: str | None = None) -> Any:
    """Live once; returns the result."""

    async def main() -> Any:
        async with nl.Runtime(store or QuickStore()) as rt:
            return await rt.run(agent, *args, id=id)

    return run_async(main)


def prove_gone(store: QuickStore) -> None:
    """Report the death of the processes that made the starts there are."""
    records = store.load_journal("run", since=0).records
    for session in {read_start(one).w for one in records if one.kind is Kind.INTENT} - {""}:
        store.end_sessions([session], Cause.DIED, evidence={session: Evidence(is_gone=True)})
