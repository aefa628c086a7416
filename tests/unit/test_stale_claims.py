"""A claim that is stale before its journal is read: nothing is executed, nothing is written for it."""

from __future__ import annotations

import asyncio

import ninelives as nl
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.worker import event_loop
from ninelives.engine.worker.executor import Executor
from ninelives.stores.clock import SystemClock
from tests.replay.lifetimes import QuickStore, run_async


def test_a_run_that_another_owns_by_now_is_left_to_him() -> None:
    store, executed = QuickStore(), list[int]()

    @nl.agent(name="quick")
    async def quick() -> int:
        executed.append(1)
        return 7

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.start(quick, id="run")
        for session in ("slow", "other"):
            store.register_session(NewSession(id=session, host="here", pid=1))
        (stale,) = store.claim_runs("slow", 1, {"quick": 1}).runs
        store.end_sessions(["slow"], Cause.EXPIRED)
        (owned,) = store.claim_runs("other", 1, {"quick": 1}).runs
        assert owned.epoch > stale.epoch
        loop, committer = asyncio.get_running_loop(), Committer(store, SystemClock())
        event_loop.enter(loop)
        try:
            await Executor(store, LoopCommits(committer, loop), loop, SystemClock()).execute(stale)
        finally:
            event_loop.leave(loop)
            await asyncio.to_thread(committer.close)

    run_async(main)
    run = store.read_run("run")
    assert run is not None
    assert (run.state, run.session, run.length, executed) == (State.RUNNING, "other", 1, [])
