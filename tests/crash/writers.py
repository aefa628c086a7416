"""Many processes on one file: nobody starves, and nobody who waits for work is left sleeping."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from ninelives.core.model.run import NewRun
from ninelives.core.model.session import NewSession
from tests.crash import judge, mutants, processes
from tests.crash.disk import Writer
from tests.crash.ledger import Fact, read
from tests.crash.stores import open_at

WAIT_SECONDS = 20.0
PATIENCE_SECONDS = 900.0
"""Thousands of rounds on a busy server take their time; one that is stuck ends by `WAIT_SECONDS`."""


class Shares(Struct):
    """How many commits each writer got through."""

    commits: list[int]
    violations: list[str]

    @property
    def smallest(self) -> float:
        """Return the smallest share, as a part of a fair one."""
        return min(self.commits) * len(self.commits) / max(1, sum(self.commits))


def compete(home: str, *, writers: int = 4, seconds: float = 3.0, mutant: str = "") -> dict[str, Any]:
    """Let processes commit as fast as they can for a while; a task of the fork server."""
    told = Path(home) / "ledger"
    open_at(Path(home)).close()
    ready_reader, ready_writer = os.pipe()
    gate_reader, gate_writer = os.pipe()

    os.environ["NINELIVES_GREEDY"] = str(Path(home) / "greedy")  # for the mutant that needs one of its kind

    def write(name: str) -> None:
        mutants.plant(mutant)
        writer = Writer(Path(home), told, name)
        os.write(ready_writer, b"r")
        processes.read_byte(gate_reader)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            writer.append(300)
        os._exit(0)

    names = [f"writer-{number}" for number in range(writers)]
    pids = [processes.fork(lambda name=name: write(name)) for name in names]  # type: ignore[misc]
    for _ in pids:
        processes.read_byte(ready_reader)
    os.write(gate_writer, b"g" * writers)
    codes = [processes.collect(pid, seconds + 30) for pid in pids]
    entries = list(read(told))
    commits = [sum(one.fact is Fact.APPENDED and one.run == name for one in entries) for name in names]
    wrong = [f"a writer ended with {code}" for code in codes if code]
    wrong += judge.judged(Path(home), entries)
    return dict(to_builtins(Shares(commits, wrong)))


class Wakes(Struct):
    """How a waiter fared."""

    rounds: int
    slept: int
    timeouts: int
    slowest_ms: float


def wake(home: str, *, rounds: int = 2000, mutant: str = "") -> dict[str, Any]:
    """One process creates runs, another sleeps until there is one; a task of the fork server.

    The producer makes the next run up to a millisecond after it hears that the last one was claimed: before
    the waiter looks, while it sleeps, or in between, where a wake-up could be lost.
    """
    open_at(Path(home)).close()
    turn_reader, turn_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()

    def produce() -> None:
        mutants.plant(mutant)
        store = open_at(Path(home))
        rng = Random(rounds)
        for number in range(rounds):
            processes.read_byte(turn_reader, 2 * WAIT_SECONDS)
            _spin(rng.uniform(0, 0.001))
            store.create_runs([NewRun(id=f"run-{number}", agent="wake", fingerprint=b"f", body=b"")])

    def wait() -> None:
        store = open_at(Path(home))
        store.register_session(NewSession(id="waiter", host="here", pid=os.getpid(), lease_ms=3_600_000))
        timeouts, sleeps, slowest = 0, 0, 0.0
        patience = WAIT_SECONDS if not mutant else 0.5
        for _ in range(rounds):
            os.write(turn_writer, b"t")
            began = time.monotonic()
            while not store.claim_runs("waiter", 1, {"wake": 1}).runs:
                sleeps += 1
                timeouts += not store.wait_for_work(patience)
            slowest = max(slowest, time.monotonic() - began)
        os.write(answer_writer, msgspec.json.encode(Wakes(rounds, sleeps, timeouts, slowest * 1000)))

    pids = [processes.fork(produce), processes.fork(wait)]
    os.close(answer_writer)
    for pid in pids:
        code = processes.collect(pid, PATIENCE_SECONDS)
        if code:
            raise AssertionError(f"a process ended with {code}")
    return dict(to_builtins(msgspec.json.decode(os.read(answer_reader, 500), type=Wakes)))


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
