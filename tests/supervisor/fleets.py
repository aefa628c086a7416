"""Fleets for tests: the command itself, its log, and the agents that its workers run."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import ninelives as nl
from ninelives.core.model.run import RunRow, State
from ninelives.stores.sqlite import SqliteStore

PATIENCE_SECONDS = 60.0
_READY = re.compile(r"worker (\d+) is ready \(pid (\d+)\)")

AGENTS = """
import asyncio, os, subprocess, sys, time
from pathlib import Path
import ninelives as nl

VERSION = "old"

def note(*words):
    fd = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)

async def gate(name):
    while not Path(name).exists():
        await asyncio.sleep(0.01)

@nl.action
async def mark(name: str) -> int:
    note(nl.info().run, name, os.getpid(), VERSION)
    return os.getpid()

@nl.action
async def hold(name: str) -> int:
    note(nl.info().run, name, os.getpid(), VERSION)
    await gate("go")
    return os.getpid()

@nl.agent
async def held() -> str:
    await mark("first")
    await hold("second")
    await mark("third")
    return VERSION

@nl.action
async def once(how: str) -> str:
    if not Path("died").exists():
        note(nl.info().run, "once", os.getpid())
        Path("died").touch()
        if how == "exit":
            os._exit(0)
        if how == "block":
            time.sleep(1000)
    return how

@nl.agent
async def dying(how: str) -> str:
    return await once(how)

@nl.action
async def push() -> None:
    here = Path("strays")
    here.mkdir(exist_ok=True)
    for one in here.iterdir():
        one.unlink()
    has_before = Path("before").exists()
    script = "echo $$ > strays/%s; exec sleep 1000"
    subprocess.Popen(["sh", "-c", script % "child"])
    subprocess.Popen(["sh", "-c", script % "session"], start_new_session=True)
    subprocess.Popen(["sh", "-c", "setsid sh -c '" + script % "daemon" + "' & exit 0"])
    bare = ["env", "-i", "PATH=" + os.environ["PATH"]]
    subprocess.Popen([*bare, "sh", "-c", script % "bare"])
    if has_before:
        subprocess.Popen([*bare, "setsid", "sh", "-c", script % "bare-session"])
    while len([one for one in here.iterdir() if one.read_text().strip()]) < (5 if has_before else 4):
        await asyncio.sleep(0.01)
    note(nl.info().run, "pushed", os.getpid())
    await gate("go")

@nl.agent
async def pusher() -> None:
    await push()
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds; fails when it does not for very long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Tell whether a process lives and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


class Home:
    """A directory with agents and a store in it."""

    def __init__(self, path: Path, code: str = AGENTS) -> None:
        self.path, self._code = path, code
        self.url = f"sqlite:///{path}/runs.db"
        (path / "agents.py").write_text(code)

    def open(self) -> SqliteStore:
        """Open the store, as another program would."""
        return SqliteStore(self.path / "runs.db")

    def start(self, *runs: str, agent: str, args: tuple[str, ...] = ()) -> None:
        """Make runs durable."""

        async def main() -> None:
            async with nl.Runtime(self.url) as runtime:
                for run in runs:
                    await runtime.start(agent, *args, id=run)

        exec(self._code, {"__name__": "agents"})  # declares them here too
        asyncio.run(main())

    def state(self, run: str) -> State:
        """Return the state that a run is in."""
        return self.row(run).state

    def row(self, run: str) -> RunRow:
        """Return a run's row."""
        store = self.open()
        try:
            row = store.read_run(run)
        finally:
            store.close()
        assert row is not None
        return row

    def completed(self, *runs: str) -> None:
        """Wait until runs have completed."""
        store = self.open()
        try:
            wait_until(
                lambda: all(_state(store, run) is State.COMPLETED for run in runs), f"{runs} never completed"
            )
        finally:
            store.close()

    def ledger(self) -> list[list[str]]:
        """Return what the agents have noted."""
        file = self.path / "ledger"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def noted(self, run: str, what: str) -> list[list[str]]:
        """Return the lines of a run that say something."""
        return [line for line in self.ledger() if line[:2] == [run, what]]

    def go(self) -> None:
        """Open the gate that held steps wait at."""
        (self.path / "go").touch()


def _state(store: SqliteStore, run: str) -> State | None:
    row = store.read_run(run)
    return row.state if row is not None else None


class Up:
    """A supervisor that was started as a person does it."""

    def __init__(
        self, home: Home, *options: str, command: str = "worker", prefix: tuple[str, ...] = ()
    ) -> None:
        """`prefix` is a command that becomes the one after it."""
        self._home = home
        self._log = home.path / f"log-{time.monotonic_ns()}"
        words = (sys.executable, "-m", "ninelives", command, "agents.py")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, *words, "--store", home.url, *options],
                cwd=home.path,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    def said(self, text: str, times: int = 1) -> None:
        """Wait until it has said something so many times."""
        wait_until(
            lambda: self.log.count(text) >= times or (self.process.poll() is not None and self._gone(text)),
            f"never said {text!r}: {self.log}",
        )

    def _gone(self, text: str) -> bool:
        assert text in self.log, f"ended with {self.process.returncode} before {text!r}: {self.log}"
        return True

    def ready(self, workers: int = 1) -> list[int]:
        """Wait until so many workers have become ready; returns all their process ids so far."""
        self.said("is ready (pid", workers)
        return [int(pid) for _, pid in _READY.findall(self.log)]

    def kill(self) -> None:
        """Kill -9 the supervisor alone."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)
