"""Workloads on the ground: records through the committer into a store, nothing of an agent yet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from benchmarks.programs.play import PAYLOAD_BYTES
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.run import Kind, NewRun, State
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.ticket import Draft, Extras, Tail
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import open_store

_COMPLETED = Extras(change=End(State.COMPLETED))
_BODIES = [os.urandom(PAYLOAD_BYTES) for _ in range(64)]


def draft(number: int) -> Draft:
    """Return a record to be, with a body that cannot be compressed."""
    return (Kind.RESULT, f"step#{number}", _BODIES[number % 64])


class Ground:
    """A store with claimed runs and a committer."""

    def __init__(self, url: str, runs: int) -> None:
        self.store = open_store(url)
        self.committer = Committer(self.store, SystemClock())
        self._session = f"bench-{os.urandom(4).hex()}"
        new = NewSession(id=self._session, host="here", pid=os.getpid(), lease_ms=10**9)
        self.store.register_session(new)
        self.tails = self.claim(f"run-{os.urandom(4).hex()}", runs)

    def claim(self, prefix: str, count: int) -> list[Tail]:
        """Create and claim runs."""
        new = [NewRun(id=f"{prefix}-{n}", agent=prefix, fingerprint=b"", body=b"{}") for n in range(count)]
        self.store.create_runs(new)
        return [Tail(run) for run in self.store.claim_runs(self._session, count, {prefix: count}).runs]

    def close(self) -> None:
        """Close everything; the runs are left to the next who claims them."""
        self.committer.close()
        self.store.end_sessions([self._session], Cause.STOPPED)
        self.store.close()


def alone(ground: Ground, count: int) -> float:
    """Return commits per second of one writer, one record each, waiting for each."""
    tail = ground.tails[0]
    began = time.perf_counter()
    for number in range(count):
        verdict = ground.committer.commit(tail, [draft(number)])
        assert verdict.outcome is Outcome.COMMITTED
    return count / (time.perf_counter() - began)


def together(ground: Ground, tails: list[Tail], each: int) -> float:
    """Return records per second of many coroutines, each waiting for its own commits."""

    async def write(commits: LoopCommits, tail: Tail) -> None:
        for number in range(each):
            verdict = await commits.commit(tail, [draft(number)])
            assert verdict.outcome is Outcome.COMMITTED

    async def main() -> float:
        commits = LoopCommits(ground.committer, asyncio.get_running_loop())
        began = time.perf_counter()
        await asyncio.gather(*(write(commits, tail) for tail in tails))
        return len(tails) * each / (time.perf_counter() - began)

    return asyncio.run(main())


def fill(ground: Ground, records: int, progress: Callable[[int], None]) -> None:
    """Grow the store: completed runs of 100 records each, as quickly as it goes."""
    done = 0
    while done < records:
        runs = min(50, -(-(records - done) // 100))
        for tail in ground.claim(f"fill-{os.urandom(4).hex()}", runs):
            drafts = [draft(number) for number in range(100)]
            ground.committer.submit(tail, drafts, _COMPLETED, within_seconds=1)
        ground.committer.commit(ground.tails[0], [draft(0)])
        done += runs * 100
        progress(runs * 100)
