"""The demo that newcomers run: it passes, and it can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

from tests.crash import demo
from tests.crash.ledger import Fact, Ledger


def test_the_demo_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.demo"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "12 kills" in done.stdout
    assert "0 lost, 0 torn, chain verified" in done.stdout


def test_a_record_that_is_not_there_counts_as_lost(disk_home: Path) -> None:
    assert demo.live_and_die(disk_home, 1, Random(1)).lost == 0
    Ledger(disk_home / "ledger").write(Fact.APPENDED, demo.RUN, seq=10**6, check="00")
    assert demo.look(disk_home)[1] == 1
