"""A store that is away for a moment, in the middle of a worker's own calls: it waits, and does not end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import StoreAway, StoreUnavailable
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.commit import committer
from ninelives.engine.worker import executor, worker
from ninelives.runtime import ProcessOptions
from tests.replay.lifetimes import QuickStore, run_async


@nl.agent(name="away.plain")
async def plain() -> int:
    return 7


class Shaky:
    """A store of which some calls fail: each as often as it was told, after some that do not."""

    def __init__(self, failures: dict[str, int], error: type[StoreUnavailable] = StoreUnavailable) -> None:
        self.store, self.failures, self._error = QuickStore(), dict(failures), error
        self.good: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if self.good.get(name, 0) > 0:
            self.good[name] -= 1
        elif self.failures.get(name, 0) > 0:
            self.failures[name] -= 1
            return self._fail
        return getattr(self.store, name)

    def _fail(self, *_: object, **__: object) -> None:
        raise self._error("no room at the server")


def left(store: QuickStore, count: int) -> None:
    """Leave runs to the next worker, as one that died."""
    store.register_session(NewSession(id="dead", host="here", pid=1))
    assert len(store.claim_runs("dead", count, {"away.plain": count}).runs) == count
    store.end_sessions(["dead"], Cause.DIED)


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_cannot_read_what_it_claimed_reads_it_later(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(executor, "UNAVAILABLE_SECONDS", 0.01)
    shaky = Shaky({})

    async def main() -> None:
        async with nl.Runtime(shaky) as rt:
            runs = [await rt.start(plain, id=f"r{n}") for n in range(count)]
            left(shaky.store, count)
            shaky.failures = {"load_journal": 2 * count, "load_journals": 1, "now_ms": 1}
            working = asyncio.create_task(rt.work())
            assert [await run.result() for run in runs] == [7] * count
            assert not working.done()
            working.cancel()

    run_async(main)
    assert shaky.failures["load_journal"] == 0


def test_a_worker_that_cannot_ask_for_the_time_rests_all_the_same() -> None:
    shaky = Shaky({})

    async def main() -> None:
        async with nl.Runtime(shaky) as rt:
            later = await rt.start(plain, id="later", delay=0.2)
            shaky.good, shaky.failures = {"now_ms": 1}, {"now_ms": 1}  # the first is asked with the claim
            working = asyncio.create_task(rt.work())
            assert await later.result() == 7
            assert not working.done()
            working.cancel()

    run_async(main)
    assert shaky.failures["now_ms"] == 0


def test_a_worker_that_may_wait_begins_when_there_is_room_and_says_what_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    shaky, told = Shaky({"register_session": 3}, StoreAway), list[str]()

    async def main() -> None:
        async with nl.Runtime(shaky) as rt:
            await rt.start(plain, id="run")
            with pytest.raises(StoreAway):  # nobody was told to wait
                await rt.work(until_idle=True)
        patient = ProcessOptions(away=lambda error: told.append(error.what))
        async with nl.Runtime(shaky, process=patient) as rt:
            await rt.work(until_idle=True)
            assert await (await rt.get("run")).result() == 7

    run_async(main)
    assert told == ["no room at the server"] * 2


def test_who_ends_for_a_store_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    committer.end_process(nl.StoreUnsafe("the server runs with fsync = off", remedy="Set fsync = on"))
    assert ended == [committer.EXIT_CODE]
    assert "StoreUnsafe: the server runs with fsync = off. Set fsync = on\n" in capfd.readouterr().err
