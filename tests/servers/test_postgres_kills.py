"""Agents on PostgreSQL whose workers, or whose server, are killed with SIGKILL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.backends.postgres import PostgresStore
from ninelives.core.model import RunQuery, State
from tests.servers.agents import LEDGER, count
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0
AGENTS = "tests.servers.agents"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Yield a server of these tests' own, which they kill."""
    made = PostgresServer()
    yield made
    made.remove()


def until(look: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


class Scene:
    """A store, a ledger, and the processes that work on it."""

    def __init__(self, server: PostgresServer, home: Path, schema: str) -> None:
        self.url = f"{server.url}?schema={schema}"
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


@pytest.fixture
def scene(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a fresh schema and ledger."""
    made = Scene(server, tmp_path, f"kills_{abs(hash(request.node.name)) % 10**8}_{os.getpid()}")
    yield made
    made.end()


def start(url: str, names: list[str], steps: int) -> None:
    """Start runs; whatever this acknowledges is durable."""

    async def main() -> None:
        async with nl.Runtime(url) as rt:
            for name in names:
                await rt.start(count, name, steps, id=name)

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


def test_the_judge_sees_a_step_that_was_repeated_after_its_result_was_given() -> None:
    assert repeated_after_seen(["did r 0", "saw r 1", "did r 1", "did r 1"]) == []
    assert repeated_after_seen(["did r 0", "saw r 1", "did r 0"]) == ["did r 0"]


def test_a_killed_run_goes_on_by_the_same_command_and_repeats_nothing_recorded(scene: Scene) -> None:
    first = scene.begin("run", f"{AGENTS}:held", "--id", "r", "r")
    until(lambda: scene.lines()["hangs"] == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    again = scene.command("run", f"{AGENTS}:held", "--id", "r", "r")
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == "2"
    assert scene.lines() == {"did r 0": 1, "hangs": 2}
    listed = scene.command("ps", "--all", "--json")
    assert [run["id"] for run in json.loads(listed.stdout)] == ["r"], listed.stderr
    shown = scene.command("show", "r")
    assert shown.returncode == 0, shown.stderr
    assert "add" in shown.stdout


def test_nothing_acknowledged_is_lost_and_nothing_repeated_while_the_server_is_killed(
    scene: Scene, server: PostgresServer
) -> None:
    names = [f"r{n}" for n in range(12)]
    steps = 40
    start(scene.url, names, steps)
    scene.begin("up", AGENTS, "--processes", "2")
    store = PostgresStore(scene.url)
    try:
        for kill in range(1, 4):
            until(lambda kill=kill: scene.lines().total() > kill * 150)  # type: ignore[misc]
            server.kill()
            server.start()
        until(lambda: all(run.state is State.COMPLETED for run in store.list_runs(RunQuery())))
        assert len(store.list_runs(RunQuery())) == len(names)
        assert store.verify() == []
    finally:
        store.close()
    seen = scene.lines()
    assert {f"did {name} {n}" for name in names for n in range(steps)} <= seen.keys()
    assert repeated_after_seen(scene.ledger.read_text().splitlines()) == []
    repeated = sum(times - 1 for line, times in seen.items() if line.startswith("did "))
    assert repeated <= 3 * len(names), "only what was under way when the server died may be repeated"


def test_the_runs_of_a_killed_worker_are_taken_over(scene: Scene) -> None:
    start(scene.url, [f"r{n}" for n in range(4)], 30)
    first = scene.begin("worker", AGENTS, "--processes", "1")
    until(lambda: scene.lines().total() > 20)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    scene.begin("worker", AGENTS, "--processes", "1")
    store = PostgresStore(scene.url)
    try:
        until(lambda: all(run.state is State.COMPLETED for run in store.list_runs(RunQuery())))
    finally:
        store.close()
    seen = scene.lines()
    assert all(seen[f"did r{n} {step}"] >= 1 for n in range(4) for step in range(30))
    assert sum(times - 1 for line, times in seen.items() if line.startswith("did ")) <= 4
