"""What an idle worker costs: with a thousand parked runs it writes nothing, and reads no journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import apsw
import pytest

import ninelives as nl
from ninelives.core.errors import NineLivesError
from ninelives.core.model.commit import Commit, Park
from ninelives.core.model.counter import Counter as Counted
from ninelives.core.model.run import Journal, State
from ninelives.core.model.session import Cause, Evidence, Session
from ninelives.engine.worker import worker
from ninelives.stores.sqlite import SqliteStore
from tests.contract.makers import new_run, new_session

PARKED = 1_000
POLLS = 10
PATIENCE_SECONDS = 60.0
HOURS_MS = 3_600_000


class Counting(SqliteStore):
    """Counts what a worker asks."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.calls: Counter[str] = Counter()

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
        counts: Mapping[str, Sequence[Counted]] | None = None,
    ) -> list[Session]:
        """Look for the dead: once in each poll."""
        self.calls["polls"] += sessions is None
        return super().end_sessions(sessions, cause, evidence=evidence, counts=counts)

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Read a journal."""
        self.calls["journals"] += 1
        return super().load_journal(run, since=since)

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Read journals."""
        self.calls["journals"] += len(runs)
        return super().load_journals(runs)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counting]:
    """Yield a store with parked runs: half wait for a time, half for news."""
    opened = Counting(tmp_path / "runs.db")
    opened.create_runs([new_run(f"r{number}", "parked sleeper") for number in range(PARKED)])
    opened.register_session(new_session("before"))
    claimed = opened.claim_runs("before", PARKED, {"parked sleeper": PARKED}).runs
    later = opened.now_ms() + HOURS_MS
    opened.commit(
        [
            Commit(
                run=run.id,
                epoch=run.epoch,
                length=run.length,
                head=run.head,
                records=(),
                change=Park(later if run.number % 2 else None, "for somebody", run.news),
            )
            for run in claimed
        ]
    )
    opened.end_sessions(["before"], Cause.STOPPED)
    assert opened.stats().runs[State.CHECKPOINTED] == PARKED
    yield opened
    opened.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, patiently."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 (what it waits for happens in threads of the store)
            await asyncio.sleep(0.005)


def test_an_idle_worker_beside_parked_runs_writes_nothing(
    store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    looking = apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY)

    @nl.agent(name="parked sleeper")
    async def sleeper() -> None:
        raise AssertionError("it was parked")

    async def main() -> None:
        async with nl.Runtime(store, lease_seconds=36_000) as rt:  # so that no renewal falls into the test
            working = asyncio.create_task(rt.work())
            await until(lambda: store.calls["polls"] >= POLLS)
            before, polls = looking.pragma("data_version"), store.calls["polls"]
            await until(lambda: store.calls["polls"] >= polls + POLLS)
            assert looking.pragma("data_version") == before  # which any commit of another changes
            store.renew_session(store.list_sessions()[0].id)
            assert looking.pragma("data_version") != before
            working.cancel()
            await asyncio.wait([working])

    asyncio.run(main())
    looking.close()
    assert store.calls["journals"] == 0
