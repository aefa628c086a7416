"""Load on a store, with retention beside it, and the store's size from time to time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import ninelives as nl
from ninelives.ops.retention import Retention, retain
from ninelives.stores.sqlite import SqliteStore

KEEP_MS = 1_000


@nl.action(name="retention.work")
async def work(number: int) -> str:
    """Return some bytes that no compression makes small."""
    return os.urandom(600).hex()


@nl.agent(name="retention.agent")
async def agent(steps: int) -> int:
    """Do some steps."""
    for number in range(steps):
        await work(number)
    return steps


class Sizes(msgspec.Struct):
    """The store's size, in bytes with its log, after each second; how many runs ended; what was removed."""

    bytes: list[int]
    runs: int
    journals: int
    entries: int


def measure(home: Path, seconds: float, *, is_retained: bool = True) -> Sizes:
    """Put load on a store for so many seconds, with retention or without."""
    path = home / "runs.db"
    found = Sizes([], 0, 0, 0)
    with _load(path), SqliteClosing(path) as store:
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            time.sleep(0.5)
            if is_retained:
                limits = Retention(keep_ms=KEEP_MS, agents={}, forget_ms=2 * KEEP_MS, log_ms=KEEP_MS)
                removed = retain(store, limits).removed
                found.journals += removed.journals
                found.entries += removed.entries
            found.bytes.append(sum(store.gauges().used.values()))
        found.runs = sum(one.value for one in store.read_counters() if one.name == "runs_ended")
    return found


class SqliteClosing:
    """A store, for a `with` block; it is created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path)

    def __enter__(self) -> SqliteStore:
        return self._store

    def __exit__(self, *_: object) -> None:
        faults = self._store.verify()
        self._store.close()
        if faults:
            raise AssertionError(f"the store does not verify: {faults}")


@contextmanager
def _load(path: Path) -> Iterator[None]:
    """Run agents in another process, which is killed and started again and again."""
    begun, done = threading.Event(), threading.Event()

    def always() -> None:
        while not done.is_set():
            command = [sys.executable, "-m", "tests.retention.worker", str(path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()  # its first runs have ended
            begun.set()
            done.wait(1.5)
            process.kill()
            process.communicate()

    thread = threading.Thread(target=always)
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        done.set()
        thread.join()
