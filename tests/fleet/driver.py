"""Drives a fleet: starts supervisors and runs, arms windows, kills, stops, wakes, and waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Self

import ninelives as nl
from ninelives.core.errors import StoreUnavailable
from ninelives.core.journal.answers import read_item_body
from ninelives.core.model.run import RunQuery, State
from tests.crash.stores import address
from tests.fleet.agents import expected
from tests.fleet.ledger import Entry, Fact, Ledger, read

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
_AGENTS: tuple[str, ...] = ("fleet.chain", "fleet.chain", "fleet.fan", "fleet.shop", "fleet.shop")
_QUEUE = ("next.lock", "write.lock")
_OPEN = (State.PENDING, State.RUNNING, State.CHECKPOINTED, State.ESCALATED)


class Drive:
    """One store, its supervisors, its runs and its ledger."""

    def __init__(
        self, home: Path, *, seed: int, lease_seconds: float, processes: int = 3, in_flight: int = 20
    ) -> None:
        self.home, self.random = home, Random(seed)
        self.processes, self._lease_seconds, self.in_flight = processes, lease_seconds, in_flight
        self.agents = _AGENTS
        (home / "arms").mkdir()
        self.url = address(home)
        self.ledger = Ledger(home / "ledger")
        self.expected: dict[str, int] = {}
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._read = 0
        self.entries: list[Entry] = []

    def __enter__(self) -> Self:
        self._runtime = nl.Runtime(self.url).sync()
        self._runtime.__enter__()
        self.store = self._runtime._runtime.store
        return self

    def __exit__(self, *_: object) -> None:
        for supervisor in self.supervisors:
            supervisor.send_signal(signal.SIGTERM)
        for supervisor in self.supervisors:
            try:
                supervisor.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()
        self._runtime.__exit__(None, None, None)

    # Processes ----------------------------------------------------------------------------------

    def start_supervisor(
        self, url: str | None = None, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a supervisor and its workers, who may know another address of the store, or `more`."""
        command = [sys.executable, "-m", "ninelives", "worker", str(ROOT / "tests/fleet/agents.py")]
        command += ["--store", url or self.url, "--processes", str(self.processes), "--concurrency", "10"]
        command += ["--lease", str(self._lease_seconds), "--hang", "60", "--backoff", "0"]
        with (self.home / "log").open("ab") as log:
            supervisor = subprocess.Popen(
                command,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "FLEET_HOME": str(self.home), **(more or {})},
            )
        self.supervisors.append(supervisor)
        return supervisor

    def kill_supervisor(self, supervisor: subprocess.Popen[bytes]) -> None:
        """Kill -9 a supervisor alone."""
        self.ledger.write(Fact.KILLED, step="supervisor", pid=supervisor.pid)
        supervisor.kill()
        supervisor.wait()
        self.supervisors.remove(supervisor)

    def workers(self) -> list[int]:
        """Return the processes that the supervisors have started."""
        found: list[int] = []
        for supervisor in self.supervisors:
            with suppress(OSError):
                children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text()
                found += map(int, children.split())
        return found

    def kill_worker(self) -> bool:
        """Kill -9 some worker, wherever it is."""
        workers = self.workers()
        if not workers:
            return False
        pid = self.random.choice(workers)
        self.ledger.write(Fact.KILLED, step="at any moment", pid=pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def holds_up_others(self, pid: int) -> bool:
        """Tell whether a process is in the writers' queue of the store: if it is stopped, nobody writes."""
        queue = {path.stat().st_ino for path in self.home.rglob("*.lock") if path.name in _QUEUE}
        locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        # 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF; who only waits has "->" as the second word
        return any(
            one[1] == "FLOCK" and int(one[4]) == pid and int(one[5].rpartition(":")[2]) in queue
            for one in locks
        )

    # Windows ------------------------------------------------------------------------------------

    def arm(self, name: str) -> None:
        """Arm a window."""
        (self.home / "arms" / name).touch()

    def disarm(self, name: str) -> bool:
        """Disarm a window; False when somebody has passed it meanwhile."""
        try:
            (self.home / "arms" / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def is_armed(self, name: str) -> bool:
        """Tell whether nobody has passed a window yet."""
        return (self.home / "arms" / name).exists()

    # Runs ---------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Start runs, so that there is always work."""
        left = len(self.store.list_runs(RunQuery(states=_OPEN, limit=self.in_flight)))
        for _ in range(self.in_flight - left):
            agent = self.random.choice(self.agents)
            run, seed, steps = f"run-{len(self.expected)}", self.random.randrange(1000), 6
            try:
                self._runtime.start(agent, seed, steps, id=run)
            except StoreUnavailable:
                return  # somebody stands still with the store's lock in his hand
            self.ledger.write(Fact.STARTED, run)
            self.expected[run] = expected(agent, seed, steps)

    def finish(self) -> None:
        """Wait until every run has ended; which is for the judge to say."""
        query = RunQuery(states=_OPEN[:3], limit=1)
        self.wait_until(lambda: not self.store.list_runs(query), "the runs to end", must=False)

    def results(self) -> dict[str, object]:
        """Return what became of the runs: the result, or the state of those that have none."""
        found: dict[str, object] = {}
        for run in self.expected:
            row = self.store.read_run(run)
            state = row.state if row is not None else "lost"
            found[run] = (
                self._runtime.get(run).result() if state is State.COMPLETED else f"{state}{self._asked(run)}"
            )
        return found

    def _asked(self, run: str) -> str:
        """Return why a run failed, and what a person is asked about it."""
        row = self.store.read_run(run)
        failed = f"; {row.last_error}" if row is not None and row.last_error else ""
        return failed + "".join(f"; {read_item_body(item).what}" for item in self.store.list_inbox(run=run))

    # Waiting ------------------------------------------------------------------------------------

    def news(self) -> list[Entry]:
        """Return what was written to the ledger since the last look."""
        fresh, self._read = read(self.home / "ledger", self._read)
        self.entries += fresh
        return fresh

    def wait_until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        seconds: float = PATIENCE_SECONDS,
        must: bool = True,
    ) -> bool:
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                assert not must, f"waited in vain for {what}:\n{self.log()}"
                return False
            time.sleep(0.005)
        return True

    def log_count(self, words: str) -> int:
        """Count how often supervisors and workers have said something."""
        return (self.home / "log").read_text(errors="replace").count(words)

    def log(self) -> str:
        """Return the end of what supervisors and workers have said."""
        return (self.home / "log").read_text(errors="replace")[-4000:]
