"""Trials: a machine is lost in the middle of its work; what was lost is at most what the restore says.

A process writes, another copies to a real S3 server. At random moments the replicator or the server is killed
and started again; then writer and replicator are killed at once, and the store is restored elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from msgspec import Struct

from ninelives.core.model.key import KeyState
from ninelives.ops.replication.bucket import BucketUnavailable
from ninelives.ops.replication.opening import open_bucket
from ninelives.ops.replication.restoring import restore
from ninelives.stores.open import open_store
from tests.contract.makers import AnyStore
from tests.servers.s3 import Seaweed, fresh_url
from tests.servers.server_process import die_with_parent

_SECONDS = 60.0


class Outcome(Struct, frozen=True):
    """What a trial measured: both losses are the time of the last acknowledged commits that are missing."""

    seed: int
    kills: int
    commits: int
    lost: int
    measured_seconds: float
    stated_seconds: float
    faults: tuple[str, ...]


def trial(server: Seaweed, home: Path, seed: int) -> Outcome:
    """Lose a machine, restore its store, and compare with what was acknowledged."""
    rng, url, ledger = Random(seed), fresh_url(), home / "ledger"
    os.environ.update(server.environment)
    store, bucket = f"sqlite:///{home}/live.db", open_bucket(url)
    open_store(store).close()
    writer = _started("-m", "tests.replication.writer", store, str(ledger), str(seed))
    copier = _copier(store, url)
    kills = 0
    try:
        _until(lambda: bool(bucket.names("base/")) and ledger.exists(), copier)
        for _ in range(rng.randint(0, 2)):
            time.sleep(rng.uniform(0.05, 0.6))  # the moment of the kill is the point
            if rng.random() < 0.5:
                server.kill()
                time.sleep(rng.uniform(0.0, 0.3))
                server.start()
            else:
                _kill(copier)
                copier = _copier(store, url)
            kills += 1
        time.sleep(rng.uniform(0.05, 0.8))
        is_server_lost = rng.random() < 0.3
        if is_server_lost:
            server.kill()
        died_ms = time.time_ns() // 1_000_000
    finally:
        _kill(writer)
        _kill(copier)
    if is_server_lost:
        server.start()
    return _judged(seed, kills + 2, home, url, died_ms)


def _judged(seed: int, kills: int, home: Path, url: str, died_ms: int) -> Outcome:
    target: AnyStore = open_store(f"sqlite:///{home}/restored.db")
    said = restore(open_bucket(url), target)
    faults = [fault.what for fault in target.verify() if not fault.duplicate]  # the writer repeats a step
    lines = [line.split() for line in (home / "ledger").read_text().splitlines()]
    whole = [line for line in lines if len(line) == 5]
    missing_ms: list[int] = []
    for at, run, length, head, key in whole:
        if not _is_there(target, run, int(length), head, key):
            missing_ms.append(int(at))
            if int(at) < said.complete_ms:  # it says "before": the same millisecond may be either
                faults.append(f"{run} record {length} of {at} is missing; complete to {said.complete_ms}")
    target.close()
    last = int(whole[-1][0]) if whole else died_ms
    measured = (last - min(missing_ms)) / 1000 if missing_ms else 0.0
    stated = max(0, died_ms - said.complete_ms) / 1000
    return Outcome(seed, kills, len(whole), len(missing_ms), measured, stated, tuple(faults))


def _is_there(store: AnyStore, run: str, length: int, head: str, key: str) -> bool:
    row = store.read_run(run)
    if row is None or row.length < length:
        return False
    records = store.load_journal(run, since=0).records
    if records[length - 1].check.hex() != head:
        return False
    if key == "-":
        return True
    known = store.read_keys([key]).get(key)
    return known is not None and known.state is KeyState.SETTLED


def _copier(store: str, url: str) -> subprocess.Popen[bytes]:
    return _started("-m", "ninelives", "store", "replicate", url, "--store", store, "--every", "1ms")


def _started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            if is_so():
                return
        except BucketUnavailable:
            pass
        if process.poll() is not None:
            raise RuntimeError(
                f"the replicator ended: {process.stderr.read().decode() if process.stderr else ''}"
            )
        if time.monotonic() > deadline:
            raise RuntimeError("there is no copy after a minute")
        time.sleep(0.02)
