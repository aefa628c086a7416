"""The comparison that the manuals quote, and the release script that they recommend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_deployment import BIN, DEPLOY

ROOT = Path(__file__).parents[2]
AGENTS = """
import ninelives as nl


@nl.action(key="charge:{order}")
async def charge(order: str) -> str:
    with open("ledger", "a") as ledger:
        ledger.write(f"charge {order}\\n")
    return f"charged {order}"


@nl.agent
async def fulfil(order: str) -> str:
    receipt = await charge(order)
    carrier: str = await nl.receive("shipped")
    return f"{receipt}, shipped by {carrier}"
"""


def test_killed_at_random_only_the_durable_agent_does_nothing_twice(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples/compare.py"), "--jobs", "2", "--kills", "2", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    bare, _, durable = (json.loads(line) for line in ran.stdout.splitlines())
    twice = ("payments made twice", "letters sent twice")
    assert bare["model calls paid again"] + sum(bare[one] for one in twice) > 0
    assert durable["kills"] > 0
    assert [durable[one] for one in (*twice, "not done")] == [0, 0, 0]


class Machine:
    """A directory with a store, releases and `ninelives up`."""

    def __init__(self, home: Path, commands: Path = BIN) -> None:
        self._home = home
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "NINELIVES_STORE": f"sqlite:///{home}/runs.db"}

    def write(self, release: str, code: str) -> Path:
        """Put a release beside the others."""
        directory = self._home / release
        directory.mkdir()
        (directory / "agents.py").write_text(code, encoding="utf-8")
        return directory

    def call(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return subprocess.run(
            list(map(str, words)), cwd=self._home, env=self._environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def release(self, new: Path, *, live: str = "live") -> None:
        """Call the release script, with a process that ignores SIGHUP in place of `ninelives up`."""
        with subprocess.Popen(["nohup", "sleep", "60"], stderr=subprocess.DEVNULL) as workers:
            try:
                done = self.call("sh", DEPLOY / "ci/release.sh", new, live, workers.pid)
            finally:
                workers.kill()
        assert done.returncode == 0, done.stderr

    def up(self) -> subprocess.Popen[str]:
        """Start the workers."""
        return subprocess.Popen(
            [BIN / "ninelives", "up", "live/agents.py", "--processes", "1"], cwd=self._home, text=True,
            env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return
    pytest.fail(f"{words!r} was never said: {''.join(said)}")


def test_a_release_is_checked_on_a_copy_rolled_out_and_rolled_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    one = machine.write("one", AGENTS)
    two = machine.write("two", AGENTS.replace(", shipped by", ", on its way with"))
    bad = machine.write("bad", AGENTS.replace("charge", "bill"))
    (tmp_path / "live").symlink_to(one)
    for order in ("A-1", "B-2"):
        machine.call("ninelives", "start", "live/agents.py:fulfil", order, "--id", order)
    with machine.up() as up:
        try:
            read_until(up, "is ready")
            while (
                len(json.loads(machine.call("ninelives", "ps", "--status", "checkpointed", "--json").stdout))
                < 2
            ):
                pass

            def release(directory: Path) -> int:
                script = DEPLOY / "ci/release.sh"
                done = machine.call("sh", script, directory, tmp_path / "live", up.pid)
                if done.returncode == 0:
                    read_until(up, "all workers have the new code")
                return done.returncode

            def ship(order: str) -> str:
                machine.call("ninelives", "signal", order, "shipped", '"DHL"')
                return machine.call("ninelives", "watch", order).stdout

            assert release(bad) == 1
            assert (tmp_path / "live").resolve() == one
            assert release(two) == 0
            assert "charged A-1, on its way with DHL" in ship("A-1")
            assert release(one) == 0
            assert "charged B-2, shipped by DHL" in ship("B-2")
        finally:
            up.send_signal(signal.SIGTERM)
    assert sorted((tmp_path / "ledger").read_text().splitlines()) == ["charge A-1", "charge B-2"]


@pytest.fixture
def fleet(tmp_path: Path) -> Machine:
    """Return a machine whose `ninelives` accepts everything."""
    accepting = tmp_path / "bin/ninelives"
    accepting.parent.mkdir()
    accepting.write_text("#!/bin/sh\n", encoding="utf-8")
    accepting.chmod(0o755)
    return Machine(tmp_path, commands=accepting.parent)


def test_a_release_that_was_killed_does_not_come_in_place_of_the_next(fleet: Machine, tmp_path: Path) -> None:
    old, killed, new = (fleet.write(name, AGENTS) for name in ("old", "killed", "new"))
    (tmp_path / "live").symlink_to(old)
    (tmp_path / "live.next").symlink_to(killed)
    fleet.release(new)
    assert (tmp_path / "live").resolve() == new


def test_a_release_is_named_from_where_the_script_is_called(fleet: Machine, tmp_path: Path) -> None:
    fleet.write("new", AGENTS)
    (tmp_path / "served").mkdir()
    fleet.release(Path("new"), live="served/live")
    assert (tmp_path / "served/live").resolve() == tmp_path / "new"
