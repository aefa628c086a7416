"""A disk that is full, broken or locked: nothing is acknowledged that is not there, and it goes on after.

The steady writer here appends through the committer and writes every acknowledgement and every pause to the
ledger. Full disks are tmpfs mounts of a fixed size in mounts of the task's own, or a limit on file sizes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ninelives.core.errors import StoreBroken, StoreUnavailable
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import Kind, NewRun
from ninelives.core.model.session import NewSession
from ninelives.engine.commit.committer import Committer, end_process
from ninelives.engine.commit.ticket import NO_EXTRAS, Tail
from ninelives.stores.clock import SystemClock
from ninelives.stores.sqlite import SqliteStore
from tests.crash import judge, mutants, processes
from tests.crash.damage import reach
from tests.crash.ledger import Fact, Ledger, count, read
from tests.crash.stores import AnyStore, open_at
from tests.crash.workload import acknowledge

PAUSED, RESUMED = "paused", "goes on"


class Writer:
    """Appends to one run for as long as it is asked."""

    def __init__(
        self, home: Path, ledger: Path, name: str, *, lock_timeout_seconds: float | None = None
    ) -> None:
        self.store: AnyStore = (
            open_at(home)
            if lock_timeout_seconds is None
            else SqliteStore(home / "runs.db", lock_timeout_seconds=lock_timeout_seconds)
        )
        self.ledger = Ledger(ledger)
        self.committer = Committer(self.store, SystemClock(), paused=self._paused)
        self.store.register_session(NewSession(id=name, host="here", pid=os.getpid()))
        self.store.create_runs([NewRun(id=name, agent=name, fingerprint=b"f", body=b"")])
        self.ledger.write(Fact.CREATED, name)
        (run,) = self.store.claim_runs(name, 1, {name: 1}).runs
        self.ledger.write(Fact.CLAIMED, name, name, epoch=run.epoch)
        self.tail = Tail(run)
        self.on_pause: list[Any] = []

    def append(self, size: int = 3000) -> None:
        """Append one record."""
        drafts = [(Kind.RESULT, f"step {self.tail.length}", os.urandom(size))]
        verdict = self.committer.commit(self.tail, drafts)
        if verdict.outcome is not Outcome.COMMITTED:
            raise AssertionError(verdict)
        acknowledge(self.ledger, self.tail, drafts, NO_EXTRAS)

    def _paused(self, error: StoreUnavailable | None) -> None:
        self.ledger.write(Fact.REFUSED, name=PAUSED if error else RESUMED)
        for action in self.on_pause:
            action()


def steady(home: str, ledger: str, *, appends: int = 8, mutant: str = "", name: str = "steady") -> None:
    """Append so many records and end; for `syscalls`."""
    mutants.plant(mutant)
    try:
        writer = Writer(Path(home), Path(ledger), name)
        for _ in range(appends):
            writer.append()
        writer.ledger.write(Fact.DONE)
    except StoreBroken as error:
        end_process(error)  # as every worker must
    os._exit(0)  # closing would sync again; a kill is as good


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Mount a tmpfs of a fixed size, for this process and its children only."""
    processes.private_mounts()
    with tempfile.TemporaryDirectory(prefix="ninelives-full-") as home:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", home]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        try:
            yield Path(home)
        finally:
            subprocess.run(["umount", "-l", home], check=False, capture_output=True, timeout=30)


def full(home: str, *, rounds: int = 3) -> list[str]:
    """Fill the disk under a writer, free it, and again; a task of the fork server. Returns violations."""
    told = Path(home) / "ledger"
    violations: list[str] = []
    with small_disk(32) as disk:
        pid = processes.fork(lambda: _write_for_ever(disk, told))
        try:
            for number in range(rounds):
                processes.until(lambda: count(told, Fact.APPENDED) >= 20 * (number + 1))  # noqa: B023
                violations += _fill_and_free(disk, told)
        finally:
            processes.kill(pid)
        violations += judged(disk, told)
    return violations


def _write_for_ever(disk: Path, told: Path) -> None:
    writer = Writer(disk, told, "full")
    while True:
        writer.append(500)


def _fill_and_free(disk: Path, told: Path) -> list[str]:
    ballast = disk / "ballast"
    pauses = _pauses(told, PAUSED)
    with ballast.open("wb", buffering=0) as file:
        size = 1 << 20
        while size >= 512:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    processes.until(lambda: _pauses(told, PAUSED) >= pauses + 2)
    facts = [entry for entry in read(told) if entry.fact in (Fact.APPENDED, Fact.REFUSED)]
    late = [entry.fact for entry in facts[-2:]]
    resumed = _pauses(told, RESUMED)
    ballast.unlink()
    processes.until(lambda: _pauses(told, RESUMED) > resumed)
    return [] if late == [Fact.REFUSED, Fact.REFUSED] else [f"acknowledged on a full disk: {late}"]


def _pauses(told: Path, name: str) -> int:
    return sum(entry.fact is Fact.REFUSED and entry.name == name for entry in read(told))


def limited(home: str, *, appends: int = 12) -> list[str]:
    """Run into a limit on file sizes, which is lifted at the third pause; a task of the fork server."""
    told = Path(home) / "ledger"

    def work() -> None:
        writer = Writer(Path(home), told, "limited")
        writer.append()
        wal = reach("runs.db-wal", (Path(home) / "runs.db-wal").read_bytes())
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 10_000, hard))

        def lift() -> None:
            if _pauses(told, PAUSED) == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        writer.on_pause.append(lift)
        for _ in range(appends):
            writer.append()

    code = processes.collect(processes.fork(work))
    wrong = [f"the writer ended with {code}"] if code else []
    if _pauses(told, PAUSED) < 3 or _pauses(told, RESUMED) != 1:
        wrong.append(f"paused {_pauses(told, PAUSED)} times, went on {_pauses(told, RESUMED)} times")
    return wrong + judged(Path(home), told)


def locked_out(home: str, *, end_by: str) -> list[str]:
    """Another process is stopped while it writes; later it is resumed or killed. A fork server task."""
    told = Path(home) / "ledger"
    SqliteStore(Path(home) / "runs.db").close()
    ready_reader, ready_writer = os.pipe()
    gate_reader, gate_writer = os.pipe()

    def holder() -> None:
        store = SqliteStore(Path(home) / "runs.db")

        def hold(_tx: object) -> None:
            os.write(ready_writer, b"r")
            processes.read_byte(gate_reader)

        store._files.write(hold)

    def work() -> None:
        writer = Writer(Path(home), told, "patient", lock_timeout_seconds=0.3)
        writer.append()
        os.write(ready_writer, b"w")
        processes.read_byte(gate_reader)
        for _ in range(5):
            writer.append()

    patient = processes.fork(work)
    processes.read_byte(ready_reader)
    blocker = processes.fork(holder)
    processes.read_byte(ready_reader)
    processes.stop(blocker)
    acknowledged = count(told, Fact.APPENDED)
    os.write(gate_writer, b"g")
    processes.until(lambda: _pauses(told, PAUSED) >= 2)
    wrong = [] if count(told, Fact.APPENDED) == acknowledged else ["acknowledged while locked out"]
    if end_by == "kill":
        processes.kill(blocker)
    else:
        os.write(gate_writer, b"g")
        processes.resume(blocker)
        wrong += [f"the holder ended with {code}" for code in [processes.collect(blocker)] if code]
    wrong += [f"the writer ended with {code}" for code in [processes.collect(patient)] if code]
    if _pauses(told, RESUMED) != 1:
        wrong.append("it did not go on")
    return wrong + judged(Path(home), told)


def judged(home: Path, told: Path) -> list[str]:
    """Judge the store in a directory by a ledger."""
    return judge.judged(home, list(read(told)))
