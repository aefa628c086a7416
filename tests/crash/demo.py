"""`make demo`: a writer appends records and is killed -9 a dozen times; watch that nothing is lost.

Every life is a process of its own on one file. It notes each acknowledged record in a plain file outside the
store; after each kill the next process opens the store, and what it finds is held against that file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random

from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ninelives.backends.clock import SystemClock
from ninelives.core.errors import Corrupt
from ninelives.core.model import Cause, Kind, NewRun, NewSession
from ninelives.engine.committer import Committer
from ninelives.engine.ticket import NOTHING, Tail
from tests.crash import processes
from tests.crash.ledger import Fact, Ledger, read
from tests.crash.stores import open_store, scratch
from tests.crash.workload import acknowledge

LIVES = 12
RUN = AGENT = "demo"
COLUMNS = ("life", "killed after", "acknowledged", "found after restart", "lost", "recovery ms")


class Life(Struct):
    """One row of the table."""

    number: int
    killed_after_ms: float
    acknowledged: int
    found: int
    lost: int
    recovery_ms: float

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        times = (f"{self.killed_after_ms:.0f} ms", f"{self.recovery_ms:.1f}")
        return (str(self.number), times[0], str(self.acknowledged), str(self.found), str(self.lost), times[1])


def write_for_ever(home: Path, name: str) -> None:
    """Be a worker: take over what a dead one left, and append until killed."""
    store, ledger = open_store("sqlite", home), Ledger(home / "ledger")
    store.register_session(NewSession(id=name, host="here", pid=1))
    store.end_sessions(None, Cause.DIED)
    store.create_runs([NewRun(id=RUN, agent=AGENT, fingerprint=b"demo", body=b"")])
    (run,) = store.claim_runs(name, 1, {AGENT: 1}).runs
    tail, committer = Tail(run), Committer(store, SystemClock())
    while True:
        drafts = [(Kind.RESULT, f"step {tail.length}", f"{name} wrote this".encode())]
        committer.commit(tail, drafts)
        acknowledge(ledger, tail, drafts, NOTHING)


def live_and_die(home: Path, number: int, rng: Random) -> Life:
    """Let a worker live for a while, kill it, and look at what it left."""
    before = _acknowledged(home)
    pid = processes.fork(lambda: write_for_ever(home, f"life {number}"))
    processes.until(lambda: _acknowledged(home) > before, 10)
    after = rng.uniform(0.05, 0.7)
    processes.ended(pid, after)
    processes.kill(pid)
    began = time.monotonic()
    found, lost = look(home)
    return Life(number, after * 1000, _acknowledged(home), found, lost, (time.monotonic() - began) * 1000)


def look(home: Path) -> tuple[int, int]:
    """Open the store anew; returns how many records are found, and how many acknowledged ones are not."""
    store = open_store("sqlite", home)
    try:
        checks = {record.seq: record.check.hex() for record in store.load_journal(RUN, since=0).records}
    finally:
        store.close()
    told = [entry for entry in read(home / "ledger") if entry.fact is Fact.APPENDED]
    return len(checks) - 1, sum(checks.get(entry.seq) != entry.check for entry in told)


def _acknowledged(home: Path) -> int:
    path = home / "ledger"
    return path.read_bytes().count(b'"appended"') if path.exists() else 0


def _shown(console: Console) -> tuple[AbstractContextManager[object], Callable[[Life], None]]:
    """Return how to show a life: a row of a live table, or a plain line."""
    if console.is_terminal:
        table = Table(*COLUMNS, title="a writer, killed -9 again and again")
        return Live(table, console=console), lambda life: table.add_row(*life.cells())
    print("  ".join(COLUMNS))
    return nullcontext(), lambda life: print(
        "  ".join(cell.rjust(len(name)) for name, cell in zip(COLUMNS, life.cells(), strict=True)), flush=True
    )


def main() -> int:
    """Show it; 1 if a number is not what it must be."""
    console, rng = Console(), Random()
    lives: list[Life] = []
    with scratch(in_memory=False) as home:
        screen, show = _shown(console)
        torn = 0
        with screen:
            for number in range(1, LIVES + 1):
                try:
                    lives.append(live_and_die(home, number, rng))
                except Corrupt as error:
                    torn += 1
                    print(error)
                    break
                show(lives[-1])
        store = open_store("sqlite", home)
        faults = store.verify()
        store.close()
        lost = sum(life.lost for life in lives)
        print(
            f"\n{len(lives)} kills, {_acknowledged(home)} records acknowledged, {lost} lost, {torn} torn,"
            f" chain {faults or 'verified'}"
        )
    return int(bool(lost or torn or faults) or len(lives) != LIVES)


if __name__ == "__main__":
    sys.exit(main())
