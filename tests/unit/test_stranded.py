"""A run that belongs to a worker's session, and that the worker does not execute, is given back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import StoreUnavailable
from ninelives.core.model.run import Claims, RunQuery, State
from ninelives.core.model.session import NewSession
from ninelives.engine.worker import worker
from ninelives.engine.worker.stranded import Stranded
from ninelives.store import Store
from tests.contract.makers import AGENTS, append, new_run
from tests.replay.lifetimes import QuickStore, run_async


@nl.agent(name="stranded.hello")
async def hello() -> str:
    return "hello"


class Deaf(QuickStore):
    """A store whose answer to the first claim that gives something is lost."""

    is_lost = False

    def claim_runs(self, session: str, limit: int, agents: Mapping[str, int], **how: Any) -> Claims:
        """Claim, and say at first that nothing was done."""
        claims = super().claim_runs(session, limit, agents, **how)
        if claims.runs and not self.is_lost:
            self.is_lost = True
            raise StoreUnavailable("the answer is lost")
        return claims


def test_a_worker_carries_out_a_run_whose_claim_it_never_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    store = Deaf()

    async def main() -> object:
        async with nl.Runtime(store, lease_seconds=1.0) as rt:
            await rt.start(hello, id="r1")
            return await rt.run(hello, id="r1")

    assert run_async(main) == "hello"
    assert store.is_lost


def owned(store: Store) -> None:
    store.create_runs([new_run("r1")])
    store.register_session(NewSession(id="s1", host="here", pid=1, lease_ms=1_000_000))
    assert store.claim_runs("s1", 1, AGENTS).runs


def states(store: Store) -> list[State]:
    return [run.state for run in store.list_runs(RunQuery())]


def test_a_run_is_given_back_only_when_it_was_seen_idle_twice(caplog: pytest.LogCaptureFixture) -> None:
    store = QuickStore()
    owned(store)
    stranded = Stranded(store, "s1", 3000)
    with caplog.at_level(logging.WARNING, "ninelives.worker"):
        stranded.check(set(), 0)
        assert states(store) == [State.RUNNING]
        stranded.check(set(), 1)
    assert states(store) == [State.CHECKPOINTED]
    assert "run r1 belonged to this worker's session" in caplog.text
    assert [run.epoch for run in store.claim_runs("s1", 1, AGENTS).runs] == [2]


def test_a_run_that_is_executed_or_that_moves_is_left_alone() -> None:
    store = QuickStore()
    owned(store)
    stranded = Stranded(store, "s1", 3000)
    stranded.check({"r1"}, 0)
    stranded.check({"r1"}, 5000)
    stranded.check(set(), 10_000)
    (run,) = store.list_runs(RunQuery())
    store.commit([append(run, b"it moves")])
    stranded.check(set(), 10_001)
    assert states(store) == [State.RUNNING]
    stranded.check(set(), 10_002)
    assert states(store) == [State.CHECKPOINTED]
