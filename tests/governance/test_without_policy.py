"""What `run` and `up` say where a store was governed: how to go on, and that no policy is named."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

AGENTS = """
import ninelives as nl

@nl.action(resumable=False)
async def refund(order: str) -> str:
    return f"refunded {order}"

@nl.agent
async def shop(order: str) -> str:
    return await refund(order)
"""
POLICY = """
[policy]
name = "shop"
default = "allow"
[[rule]]
id = "refunds"
actions = ["refund"]
do = "ask"
"""
_WARNING = "no policy judges what this process does, but policy 'shop' has governed this store"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory with an agent and its policy."""
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def ninelives(home: Path, *words: str, policy: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on the store in that directory; `policy` is its NINELIVES_POLICY."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NINELIVES_")}
    env |= {"NINELIVES_POLICY": policy} if policy else {}
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_to_go_on_with_names_the_policy(home: Path) -> None:
    ran = ninelives(home, "run", "agents.py:shop", "o-1", "--id", "r1", "--policy", "policy.toml")
    (again,) = (line for line in ran.stderr.splitlines() if "then resume it with: " in line)
    words = shlex.split(again.partition("then resume it with: ")[2])
    assert words[1:] == ["run", "agents.py:shop", "--id", "r1", "--policy", "policy.toml", "--", "o-1"]
    assert ninelives(home, "approve", "r1", "--by", "ada").returncode == 0
    assert ninelives(home, *words[1:]).returncode == 0
    assert "approved by ada" in ninelives(home, "show", "r1").stdout
    ran = ninelives(home, "run", "agents.py:shop", "o-2", "--id", "r2", policy="policy.toml")
    assert (ran.returncode, "--policy" in ran.stderr) == (3, False), "the environment names it"


def test_a_process_without_a_policy_says_so_where_one_has_governed(home: Path) -> None:
    before = ninelives(home, "run", "agents.py:shop", "o-1", "--id", "r1")
    assert (before.returncode, "policy" in before.stderr) == (0, False)
    governed = ninelives(home, "run", "agents.py:shop", "o-2", "--id", "r2", "--policy", "policy.toml")
    assert (governed.returncode, _WARNING in governed.stderr) == (3, False)
    assert _WARNING in ninelives(home, "run", "agents.py:shop", "o-3", "--id", "r3").stderr
    stopped = ninelives(home, "up", "agents.py:nobody", "--processes", "1")
    assert _WARNING in stopped.stdout + stopped.stderr
