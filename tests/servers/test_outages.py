"""The short form of the outages; `python -m tests.servers` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.stores import place
from tests.fleet.driver import Drive
from tests.fleet.ledger import Fact
from tests.servers.outages import SERVERS, _lost, outages


@pytest.mark.parametrize("store", SERVERS)
def test_a_server_killed_under_load_loses_repeats_and_strands_nothing(tmp_path: Path, store: str) -> None:
    server = SERVERS[store]()
    try:
        home = place(tmp_path, server.url)
        with Drive(home, seed=9, processes=2, lease_seconds=5.0, in_flight=12) as drive:
            report = outages(drive, server, 5)
            assert report.violations == [], drive.log()
            drive.ledger.write(Fact.COMMITTED, "run-0", epoch=1, length=1000)
            drive.news()
            assert _lost(drive) == ["record 999 of run-0 was acknowledged and is lost"]
    finally:
        server.remove()
    assert report.acknowledged > 100
