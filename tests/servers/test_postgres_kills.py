"""Agents on PostgreSQL whose workers, or whose server, are killed with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.core.model.run import RunQuery, State
from ninelives.stores.postgres import PostgresStore
from tests.servers.postgres import PostgresServer
from tests.servers.scene import AGENTS, Scene, repeated_after_seen, start, until


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Yield a server of these tests' own, which they kill."""
    made = PostgresServer()
    yield made
    made.remove()


@pytest.fixture
def scene(server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a fresh schema and ledger."""
    schema = f"kills_{abs(hash(request.node.name)) % 10**8}_{os.getpid()}"
    made = Scene(f"{server.url}?schema={schema}", tmp_path)
    yield made
    made.end()


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
