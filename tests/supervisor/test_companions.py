"""Commands that `up` keeps running beside its workers: restarted when they die, gone when it is."""

from __future__ import annotations

import logging
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.supervisor.companions import Companion, Companions, level_of
from ninelives.supervisor.descendants import processes
from ninelives.supervisor.protocol import WORKER_MARK
from tests.clocks import SteppingClock
from tests.supervisor.fleets import PATIENCE_SECONDS, Home, is_alive, wait_until

# Any command may be a companion. A second `worker` is one that runs until it is stopped.
_SUPERVISOR = """
import sys
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import open_store
from ninelives.supervisor.companions import Companion
from ninelives.supervisor.protocol import WorkerSettings
from ninelives.supervisor.supervisor import Supervisor

url, name, *words = sys.argv[1:]

def note(*said):
    print(*said, file=sys.stderr, flush=True)

settings = WorkerSettings(target="agents.py", url=url, backoff_seconds=0.1)
companions = [Companion(name, tuple(words))]
supervisor = Supervisor(
    settings, open_store(url), SystemClock(), report=note, on_output=note, companions=companions
)
sys.exit(supervisor.run())
"""


class Pair:
    """A supervisor with one worker and one companion."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.name = f"second-{path.name}"
        self.log_file = path / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SUPERVISOR, self.home.url, self.name, *words],
                cwd=self.home.path,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return self.process

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def said(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.log.count(text) >= times, f"never said {text!r}: {self.log}")

    def companion_is_ready(self, times: int = 1) -> None:
        """Wait until the companion, a supervisor too, has said so often that its worker is ready."""
        ready = re.compile(rf"^{self.name}: \S+ \S+ INFO +worker 1 is ready", re.MULTILINE)
        wait_until(lambda: len(ready.findall(self.log)) >= times, f"no companion is ready: {self.log}")

    def companion(self, *, but: int = 0) -> int:
        """Return the pid of the companion, another than `but`, once it runs."""
        wait_until(lambda: self._pids() - {but}, "no companion")
        return min(self._pids() - {but})

    def _pids(self) -> set[int]:
        return {one.pid for one in processes() if one.marks.get(WORKER_MARK, "").endswith(f"/{self.name}")}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.terminate()
        made.process.wait(PATIENCE_SECONDS)


def test_a_killed_companion_is_restarted_and_outlives_the_death_of_a_worker(pair: Pair) -> None:
    supervisor = pair.start("worker", "agents.py")
    pair.companion_is_ready()
    first = pair.companion()
    assert b"sqlite" not in Path(f"/proc/{first}/cmdline").read_bytes()  # a URL may hold a password
    os.kill(first, signal.SIGKILL)
    pair.said(f"{pair.name} killed by SIGKILL")
    pair.companion_is_ready(2)
    second = pair.companion(but=first)

    (worker,) = [int(line.split()[-1][:-1]) for line in pair.log.splitlines() if _is_ready(line)]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: sum(map(_is_ready, pair.log.splitlines())) == 2, "the worker was not restarted")
    assert is_alive(second), "it was killed as if the dead worker had started it"

    supervisor.terminate()
    assert supervisor.wait(PATIENCE_SECONDS) == 0
    assert not is_alive(second)


def _is_ready(line: str) -> bool:
    return line.startswith("worker 1 is ready")


def test_a_companion_dies_with_its_supervisor(pair: Pair) -> None:
    supervisor = pair.start("worker", "agents.py")
    pair.companion_is_ready()
    companion = pair.companion()
    supervisor.kill()
    wait_until(lambda: not is_alive(companion), "it outlived its supervisor")


def test_a_companion_that_cannot_begin_costs_no_worker(pair: Pair) -> None:
    supervisor = pair.start("worker", "no_such_file.py")
    pair.said("no_such_file")
    pair.said(f"{pair.name} exited with code 2; restarting")
    wait_until(lambda: any(map(_is_ready, pair.log.splitlines())), "no worker is ready")
    pair.said(f"{pair.name} exited with code 2; restarting", times=2)
    assert supervisor.poll() is None


def test_the_end_and_the_errors_of_a_companion_are_no_mere_news(tmp_path: Path) -> None:
    clock, said = SteppingClock(), list[tuple[str, int]]()
    words = ("notify", "--config", str(tmp_path / "missing.toml"))
    selector = selectors.DefaultSelector()
    companions = Companions(
        [Companion("notify", words)], "memory:", "mark", clock, selector, lambda *one: said.append(one)
    )
    companions.restart()
    (pid,) = companions.pids
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert status is not None
    companions.reap(status)
    os.waitpid(pid, 0)
    *_, (error, severe), (end, level) = said
    assert (severe, level) == (logging.ERROR, logging.WARNING)
    assert error.startswith("notify: ninelives: UsageError: ")
    assert end == "notify exited with code 2; restarting in 0.1 s"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ninelives: Fenced: process 7 on there copies to file:///b", logging.ERROR),
        ("ninelives: UsageError: cannot listen on 127.0.0.1 port 9", logging.ERROR),
        ("ninelives: Corrupt: segment 3 is missing", logging.ERROR),
        ("Traceback (most recent call last):", logging.ERROR),
        ("OSError: no", logging.ERROR),
        ("ERROR run r1 cannot be copied", logging.ERROR),
        ("WARNING the bucket does not answer", logging.WARNING),
        ("ninelives: warning: channel ops: answered 500; it is tried again", logging.WARNING),
        ("3 faults (7 runs, 9 rows, 0.1 s)", logging.ERROR),
        ("no faults (7 runs, 9 rows, 0.1 s)", logging.INFO),
        ("ninelives: metrics at http://127.0.0.1:9/metrics", logging.INFO),
        ("ninelives: copying sqlite:///runs.db to file:///b", logging.INFO),
    ],
)
def test_what_a_companion_prints_has_a_level(line: str, level: int) -> None:
    assert level_of(line) == level
