"""The rule of `engine.worker.event_loop.StoreCaller`: an event loop never waits for a store."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.engine.commit.committer import end_process
from ninelives.runtime.runtime import ProcessOptions
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.stores.sqlite import SqliteStore

ANSWERED_HERE = {"now_ms", "close"}
"""Calls that need no file and no server: see `Store.now_ms`."""
ON_PURPOSE = {
    "claim_runs",
    "commit",
    "create_runs",
    "end_sessions",
    "get_blobs",
    "list_inbox",
    "list_sessions",
    "load_journal",
    "load_journals",
    "read_run",
    "register_session",
}
"""What a dedicated loop calls by itself on a store of this machine. Add to it only what was measured."""


class WatchedStore:
    """Notes which calls are made on the thread that made this object: the event loop's."""

    def __init__(self, under: Store) -> None:
        self._under, self._home = under, threading.get_ident()
        self.on_loop: Counter[str] = Counter()
        self.elsewhere: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._under, name)
        if not callable(found) or name in ANSWERED_HERE:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            is_home = threading.get_ident() == self._home
            (self.on_loop if is_home else self.elsewhere)[name] += 1
            return found(*args, **kwargs)

        return call


@nl.action(name="threads.fetch")
async def fetch(number: int) -> int:
    return number + 1


@nl.action(name="threads.undo")
async def undo(words: list[str]) -> None:
    return None


@nl.action(name="threads.pay", resumable=False, key="threads:{order}", key_window=60.0)
async def pay(order: str) -> str:
    return f"paid {order}"


@nl.agent(name="threads.child")
async def child(number: int) -> int:
    return await fetch(number)


@nl.agent(name="threads.parent")
async def parent(words: list[str], turns: int = 2) -> Any:
    total = sum(await asyncio.gather(fetch(1), fetch(2)))
    await pay(words[0])
    await nl.sleep(0.01)
    spawned = await nl.spawn(child, total)
    total += await spawned.result()
    if turns:
        return nl.next_turn(words, turns - 1)
    return total + await nl.receive("more", type=int)


@nl.agent(name="threads.failing")
async def failing(words: list[str]) -> None:
    nl.on_failure(undo, words)
    raise nl.Permanent("it cannot be")


@nl.agent(name="threads.asking")
async def asking() -> str:
    return await nl.ask("May I?", options=["yes", "no"])


async def _story(rt: nl.Runtime, name: str) -> None:
    words = [f"{name} {number} " + "x" * 300 for number in range(400)]  # so long that parts are blobs
    working = asyncio.create_task(rt.work())
    runs = [await rt.start(parent, words, id=f"{name}-parent"), await rt.start(failing, words)]
    asked = await rt.start(asking, id=f"{name}-asked", delay=0.01)
    await runs[0].signal("more", 5)
    assert await runs[0].result(30) == 5 + 5 + 6
    with pytest.raises(nl.RunFailed):
        await runs[1].result(30)

    async def items_of() -> Any:
        return await rt.inbox(asked.id) or None

    items = await rt.until(items_of)
    await items[0].answer("yes", by="me")
    assert await asked.result(30) == "yes"
    working.cancel()
    await asyncio.wait((working,))
    assert await rt.run(child, 4, id=f"{name}-here") == 5
    await rt.run(child, 4, id=f"{name}-here")


def _calls(make: Callable[[], Store], process: ProcessOptions) -> WatchedStore:
    async def main() -> WatchedStore:
        store = WatchedStore(make())
        async with nl.Runtime(cast("Any", store), process=process) as rt:
            await _story(rt, "story")
        store.close()
        return store

    return asyncio.run(main())


STORES: list[Callable[[Path], Store]] = [
    lambda path: MemoryStore(SystemClock()),
    lambda path: SqliteStore(str(path / "lives.db")),
]


@pytest.mark.parametrize("make", STORES, ids=["memory", "sqlite"])
def test_no_call_of_the_store_is_made_on_a_shared_event_loop(
    make: Callable[[Path], Store], tmp_path: Path
) -> None:
    store = _calls(lambda: make(tmp_path), ProcessOptions())
    assert not store.on_loop
    assert store.elsewhere["claim_runs"]
    assert store.elsewhere["get_blobs"]


def test_a_dedicated_loop_calls_only_what_is_listed_by_itself(tmp_path: Path) -> None:
    process = ProcessOptions(is_dedicated=True, fatal=end_process)
    store = _calls(lambda: STORES[1](tmp_path), process)
    assert set(store.on_loop) <= ON_PURPOSE
    assert store.on_loop["claim_runs"]


class SlowStore(MemoryStore):
    """Takes its time for one method, until it is let go."""

    def __init__(self, slow: str) -> None:
        super().__init__(SystemClock())
        self._slow = slow
        self.has_begun, self.may_end, self.has_ended = (threading.Event() for _ in range(3))

    def claim_runs(self, *args: Any, **kwargs: Any) -> Any:
        """Claim runs, slowly."""
        self._wait("claim_runs")
        return super().claim_runs(*args, **kwargs)

    def load_journal(self, *args: Any, **kwargs: Any) -> Any:
        """Load a journal, slowly."""
        self._wait("load_journal")
        return super().load_journal(*args, **kwargs)

    def _wait(self, name: str) -> None:
        if name == self._slow and not self.has_ended.is_set():
            self.has_begun.set()
            self.may_end.wait(10)
            self.has_ended.set()


@pytest.mark.parametrize("slow", ["claim_runs", "load_journal"])
def test_a_worker_that_is_stopped_during_a_call_waits_for_its_end_and_begins_nothing(slow: str) -> None:
    begun: list[int] = []

    @nl.agent(name="threads.noting")
    async def noting(number: int) -> None:
        begun.append(number)

    async def main() -> None:
        store = SlowStore(slow)
        async with nl.Runtime(store) as rt:
            run = await rt.start(noting, 7)
            working = asyncio.create_task(rt.work())
            await asyncio.to_thread(store.has_begun.wait, 10)
            working.cancel()
            asyncio.get_running_loop().call_later(0.01, store.may_end.set)
            await asyncio.wait((working,))
            assert store.has_ended.is_set()
            assert store.list_sessions() == []
            assert begun == []
            await rt.work(until_idle=True)
            assert await run.status() == "completed"
            assert begun == [7]

    asyncio.run(main())
