"""Hosts in network namespaces, one of which is cut off; `python -m tests.servers.partitions` by hand."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from tests.servers.hosts import Way
from tests.servers.partitions import NO_NAMESPACES, WAYS, Report, late

PATIENCE_SECONDS = 500
LEASE_SECONDS = 2.0
LATE_SECONDS = 20.0  # the programme holds it to one; this machine may be busy with other tests


@pytest.mark.parametrize(("store", "ways"), [("postgresql", WAYS), ("redis", ("both",))])
def test_a_host_that_is_cut_off_loses_its_runs_and_neither_begins_nor_writes_anything(
    store: str, ways: tuple[Way, ...]
) -> None:
    command = [sys.executable, "-m", "tests.servers.partitions", "--store", store, "--seed", "11"]
    done = subprocess.run(
        [*command, "--lease", str(LEASE_SECONDS), "--late", str(LATE_SECONDS), "--ways", *ways],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode == NO_NAMESPACES:
        pytest.skip(done.stdout.strip())
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    print(f"taken over from the cut on, with a lease of {report.lease_seconds:g} s: {report.taken}")
    assert report.violations == []
    assert set(report.taken) == set(report.takeovers) == set(report.returns) == set(ways)
    assert all(seconds > 0 for seconds in report.taken.values())
    assert report.resets > 5


def test_a_takeover_that_comes_too_late_is_a_violation() -> None:
    assert late({"both": 2.9, "in": 3.1, "out": 0.0}, 2.0, 1.0) == [
        "in: taken over after 3.1 s, which is not within 3 s",
        "out: taken over after 0 s, which is not within 3 s",
    ]
