"""A worker that stands still while it takes up a run: what it reads then may be another's, and stays so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import LeaseLost
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Journal, Kind, Record
from ninelives.core.model.session import Cause, NewSession
from tests.replay.lifetimes import QuickStore, run_async

DONE: list[str] = []


@nl.action(name="overtaken.do")
async def do(what: str) -> str:
    DONE.append(what)
    if what == "failing":
        raise nl.Permanent("no")
    return what


@nl.agent(name="overtaken.fails")
async def fails() -> None:
    await do("failing")


@nl.agent(name="overtaken.turns")
async def turns(number: int) -> Any:
    await do(f"turn {number}")
    return nl.next_turn(number + 1) if number < 2 else number


class Overtaken(QuickStore):
    """Gives the run to another worker when something is about to happen to it, once."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: tuple[Record, ...] | None = None
        self.before_commit: Callable[[Record], bool] = lambda _: False
        self.before_load = False

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Wait, and wake nobody: he learns of it when he writes."""
        super().wait_for_work(timeout_seconds)
        return False

    def overtake(self) -> None:
        """End whoever works, and claim the run for another."""
        self.end_sessions([one.id for one in self.list_sessions()], Cause.DIED)
        self.register_session(NewSession(id="other", host="elsewhere", pid=1, lease_ms=60_000))
        agents = {"overtaken.fails": 1, "overtaken.turns": 1}
        assert self.claim_runs("other", 1, agents, solo=False).runs
        self.kept = super().load_journal("run", since=0).records

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Commit, perhaps too late."""
        records = [record for one in batch for record in one.records]
        if self.kept is None and any(self.before_commit(record) for record in records):
            self.overtake()
        return super().commit(batch)

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Load, perhaps what is another's by then."""
        if self.kept is None and self.before_load:
            self.overtake()
        return super().load_journal(run, since=since)

    def is_untouched(self) -> bool:
        """Tell whether nothing was recorded since the other has the run."""
        row = self.read_run("run")
        assert row is not None
        return row.session == "other" and super().load_journal("run", since=0).records == self.kept


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


def test_who_loses_a_retried_run_before_he_records_that_it_goes_on_ends_nothing() -> None:
    store = Overtaken()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed):
                await rt.run(fails, id="run")
            await (await rt.get("run")).retry()
            store.before_commit = lambda record: record.kind is Kind.SUPERSEDED
            with pytest.raises(LeaseLost):
                await rt.run(fails, id="run")

    run_async(main)
    assert store.is_untouched()
    assert DONE == ["failing"]


def test_who_loses_a_run_between_two_turns_begins_nothing() -> None:
    store = Overtaken()

    async def main() -> None:
        def is_turn(record: Record) -> bool:
            store.before_load = record.kind is Kind.TURN
            return False

        async with nl.Runtime(store) as rt:
            store.before_commit = is_turn
            with pytest.raises(LeaseLost):
                await rt.run(turns, 0, id="run")

    run_async(main)
    assert store.is_untouched()
    assert DONE == ["turn 0"]
