"""A few rounds of budgets under `kill -9` on every durable store; `budget_rounds` has the long form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.stores import DURABLE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", DURABLE)
def test_killed_workers_neither_overrun_a_budget_nor_charge_twice(kind: str) -> None:
    # In a process of its own: it forks, and this one may have threads.
    command = ["-m", "tests.governance.budget_rounds", "--rounds", "25", "--store", kind]
    ran = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "25 rounds" in ran.stdout
    assert " 0 faults" in ran.stdout
