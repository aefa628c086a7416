"""The schema is made by many at once, any of whom may be killed on the way."""

from __future__ import annotations

import subprocess
import sys

from tests.servers.postgres import shared_url


def test_a_store_is_made_whole_though_its_makers_are_killed_at_every_exchange() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tests.servers.births", shared_url()],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) >= 2 * 8, "there were fewer exchanges than a migration takes"
