"""Power cuts on a filesystem of our own: what was acknowledged is there after the next mount."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash import powercut
from tests.crash.forkserver import ForkServer

REASON = powercut.reason_not_to()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"not run: {REASON}")


def series(server: ForkServer, home: Path, **args: Any) -> dict[str, Any]:
    death = server.run("tests.crash.powercut:series", home=str(home), **args)
    return dict(death.result())


def test_a_power_cut_loses_nothing_acknowledged(server: ForkServer, home: Path) -> None:
    found = series(server, home, seed=7, cuts=12)
    assert found["violations"] == []
    assert (found["cuts"], found["control_lost"]) == (12, 0)
    assert found["acknowledged"] > 100


def test_a_power_cut_shows_that_normal_syncing_is_not_enough(server: ForkServer, home: Path) -> None:
    found = series(server, home, seed=7, cuts=12, mutant="sync_normal")
    assert found["violations"] != []
    assert found["control_lost"] == 0
