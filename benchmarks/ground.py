"""Workloads on the ground: records through the committer into a store, nothing of an agent yet."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.raw import PAYLOAD_BYTES
from ninelives.backends.clock import SystemClock
from ninelives.backends.sqlite import SqliteStore
from ninelives.core.commits import Outcome
from ninelives.core.model import Kind, NewRun
from ninelives.core.sessions import NewSession
from ninelives.engine.committer import Committer
from ninelives.engine.loop import LoopCommits
from ninelives.engine.ticket import Draft, Tail

_BODIES = [os.urandom(PAYLOAD_BYTES) for _ in range(64)]


def draft(number: int) -> Draft:
    """Return a record to be, with a body that cannot be compressed."""
    return (Kind.RESULT, f"step#{number}", _BODIES[number % 64])


class Ground:
    """A fresh store with claimed runs and a committer."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder = folder / f"ground-{os.urandom(4).hex()}"
        self.store = SqliteStore(self.folder / "runs.db")
        self.committer = Committer(self.store, SystemClock())
        self.store.register_session(NewSession(id="bench", host="here", pid=os.getpid(), lease_ms=10**9))
        self.tails = self.claim("run", runs)

    def claim(self, prefix: str, count: int) -> list[Tail]:
        """Create and claim runs."""
        new = [NewRun(id=f"{prefix}-{n}", agent=prefix, fingerprint=b"", body=b"{}") for n in range(count)]
        self.store.create_runs(new)
        return [Tail(run) for run in self.store.claim_runs("bench", count, {prefix: count}).runs]

    def close(self) -> int:
        """Close everything, remove it, and return how large the database file was."""
        self.committer.close()
        self.store.close()
        size = (self.folder / "runs.db").stat().st_size
        shutil.rmtree(self.folder)
        return size


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
    """Grow the store: runs of 100 records each, as quickly as it goes."""
    done = 0
    while done < records:
        runs = min(50, -(-(records - done) // 100))
        for tail in ground.claim(f"fill-{os.urandom(4).hex()}", runs):
            ground.committer.submit(tail, [draft(number) for number in range(100)], within_seconds=1)
        ground.committer.commit(ground.tails[0], [draft(0)])
        done += runs * 100
        progress(runs * 100)
