"""Agents on Valkey whose workers, or whose server, are killed with SIGKILL."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.core.model.run import RunQuery, State
from ninelives.core.model.session import Fate
from ninelives.stores.redis import RedisStore
from tests.servers.scene import AGENTS, Scene, repeated_after_seen, start, start_held, until
from tests.servers.valkey import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """Yield a server of these tests' own, which they kill."""
    made = ValkeyServer()
    yield made
    made.remove()


@pytest.fixture
def scene(server: ValkeyServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a fresh prefix and ledger."""
    made = Scene(f"{server.url}?prefix=kills-{abs(hash(request.node.name)) % 10**8}", tmp_path)
    yield made
    made.end()


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


def test_a_supervisor_killed_with_its_workers_is_buried_by_one_beside_it_long_before_the_lease(
    scene: Scene,
) -> None:
    scene.begin("up", AGENTS, "--processes", "1", "--lease", "600")
    store = RedisStore(scene.url)
    try:
        until(lambda: any(one.agents for one in store.list_sessions()))
        start_held(scene.url, "r")
        until(lambda: scene.lines()["hangs"] == 1)
        (worker,) = [one for one in store.list_sessions() if one.agents]
        (supervisor,) = [one for one in store.list_sessions() if one.id == worker.keeper]
        scene.begin("up", AGENTS, "--processes", "1", "--lease", "600")
        until(lambda: len([one for one in store.list_sessions() if one.agents]) == 2)
        for pid in (supervisor.pid, worker.pid):
            os.kill(pid, signal.SIGKILL)
        until(lambda: all(run.state is State.COMPLETED for run in store.list_runs(RunQuery())))
        gone = store.read_session(worker.id)
        assert gone is not None
        assert gone.fate is Fate.GONE
    finally:
        store.close()


def test_nothing_acknowledged_is_lost_and_nothing_repeated_while_the_server_is_killed(
    scene: Scene, server: ValkeyServer
) -> None:
    names = [f"r{n}" for n in range(12)]
    steps = 40
    start(scene.url, names, steps)
    scene.begin("up", AGENTS, "--processes", "2", "--lease", "3")
    store = RedisStore(scene.url)
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
