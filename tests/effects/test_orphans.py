"""A killed worker without a supervisor, whose child process lives on: what it does may still happen."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.stores import address, scratch

DEADLINE_SECONDS = 60.0
SCRIPT = """
import asyncio, sys
from pathlib import Path
import ninelives as nl

here = Path(sys.argv[2])

def effects() -> int:
    return len((here / "effects").read_text().split()) if (here / "effects").exists() else 0

async def on_file(what: str) -> nl.Happened[int] | nl.NotHappened:
    (here / "asked").touch()
    return nl.Happened(0) if effects() else nl.NotHappened()

@nl.action(name="push", resumable=False, verify=on_file)
async def push(what: str) -> int:
    line = f"touch {here}/begun; while [ ! -e {here}/go ]; do sleep 0.01; done; echo pushed >> {here}/effects"
    child = await asyncio.create_subprocess_exec("sh", "-c", line)
    return await child.wait()

@nl.agent(name="deploy")
async def deploy(what: str) -> int:
    return await push(what)

print(nl.run(deploy, "v2", id="x", store=sys.argv[1]))
"""


def until(condition: Callable[[], object]) -> None:
    """Ask until a condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_what_a_killed_worker_left_at_work_is_not_called_not_happened(tmp_path: Path, kind: str) -> None:
    with scratch(kind) as ground:
        life = [sys.executable, "-c", SCRIPT, address(ground), str(tmp_path)]
        # In a session of its own: its orphan must not concern other tests.
        with subprocess.Popen(life, start_new_session=True) as first:
            until((tmp_path / "begun").exists)
            first.kill()
        with subprocess.Popen(life, stdout=subprocess.PIPE) as second:
            until((tmp_path / "asked").exists)  # and it is told: not happened, which is true
            (tmp_path / "go").touch()
            said, _ = second.communicate(timeout=DEADLINE_SECONDS)
    assert said.split() == [b"0"]
    assert (tmp_path / "effects").read_text().split() == ["pushed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process numbers needs root")
def test_a_container_whose_session_began_outside_waits_for_no_time_limit(tmp_path: Path) -> None:
    """In a container that was entered from outside, `getsid` says 0: a number like any other."""
    with scratch("sqlite") as ground:
        life = [sys.executable, "-c", SCRIPT, address(ground), str(tmp_path)]
        # In a namespace `kill -- -1` ends every process but the first: the worker and its child die together.
        until_begun = f"until [ -e {tmp_path}/begun ]; do sleep 0.01; done"
        inside = f"{shlex.join(life)} & {until_begun}; kill -9 -- -1; touch {tmp_path}/go; {shlex.join(life)}"
        entered = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", inside]
        said = subprocess.run(
            entered, stdout=subprocess.PIPE, timeout=DEADLINE_SECONDS, check=True, start_new_session=True
        )
    assert said.stdout.split() == [b"0"]
    assert (tmp_path / "effects").read_text().split() == ["pushed"]
