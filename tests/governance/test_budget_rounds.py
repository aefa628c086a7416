"""A few rounds of budgets under `kill -9` on every durable store; `budget_rounds` has the long form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.stores import DURABLE
from tests.governance.budget_rounds import PLANTED

ROOT = Path(__file__).parents[2]


def play(*words: str) -> subprocess.CompletedProcess[str]:
    """Play rounds in a process of its own: it forks, and this one may have threads."""
    command = [sys.executable, "-m", "tests.governance.budget_rounds", *words, "--deadly", "15"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("kind", DURABLE)
def test_killed_workers_neither_overrun_a_budget_nor_charge_twice(kind: str) -> None:
    ran = play("--rounds", "25", "--store", kind)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "25 rounds" in ran.stdout
    assert " 0 faults" in ran.stdout
    assert " 0 starts presumed" not in ran.stdout, "no worker died in a body"


@pytest.mark.parametrize("bug", PLANTED)
def test_the_ledger_finds_a_budget_that_is_wrong(bug: str) -> None:
    ran = play("--rounds", "10", "--store", "sqlite", "--planted", bug)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "  round " in ran.stdout
