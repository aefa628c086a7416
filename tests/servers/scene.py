"""A store on a server, the processes that work on it, and the ledger of what they did."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import ninelives as nl
from tests.servers.agents import LEDGER, count, held, payer

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
AGENTS = "tests.servers.agents"


def until(look: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


class Scene:
    """A store, a ledger, and the processes that work on it."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.ledger = home / "ledger"
        self.environment = {
            **os.environ,
            LEDGER: str(self.ledger),
            "NINELIVES_STORE": self.url,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "ninelives", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command in a process group of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "ninelives", *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def lines(self) -> Counter[str]:
        """Return what was written to the ledger, and how often."""
        return Counter(self.ledger.read_text().splitlines() if self.ledger.exists() else [])

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self.processes:
            process.wait()


def start(url: str, names: list[str], steps: int) -> None:
    """Start runs; whatever this acknowledges is durable."""

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            for name in names:
                await rt.start(count, name, steps, id=name)

    asyncio.run(main())


def start_one(url: str, name: str) -> None:
    """Start a run that pays once."""

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            await rt.start(payer, name, id=name)

    asyncio.run(main())


def start_held(url: str, name: str) -> None:
    """Start a run that hangs in its first life."""

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            await rt.start(held, name, id=name)

    asyncio.run(main())


def repeated_after_seen(lines: list[str]) -> list[str]:
    """Return the steps that were executed after their result had been given to the agent: it was durable."""
    seen: set[tuple[str, int]] = set()
    found = []
    for line in lines:
        verb, run, n = line.split()
        if verb == "saw":
            seen.add((run, int(n) - 1))
        elif (run, int(n)) in seen:
            found.append(line)
    return found
