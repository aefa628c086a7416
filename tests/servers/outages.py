"""The server itself is killed with SIGKILL, again and again, under the load of a fleet.

The fleet's ledger stands outside the server. After each restart every record whose commit was acknowledged
before the kill must be there; in the end the fleet's judge looks at all that was done.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ninelives.core.model.run import RunQuery
from tests.crash.stores import open_at
from tests.fleet.driver import Drive
from tests.fleet.judge import judge
from tests.fleet.ledger import Entry, Fact
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

_COMMITS_BETWEEN, _MOST_DOWN_SECONDS = 25, 1.0
_SUPERVISORS = 2
Tick = Callable[[int], None]


class Server(Protocol):
    """A server with a directory of its own, on the disk."""

    @property
    def url(self) -> str:
        """Return its address."""

    def start(self) -> None:
        """Start it on the data that it left, and wait until it answers."""

    def kill(self) -> None:
        """Kill all of it with SIGKILL."""

    def remove(self) -> None:
        """Kill it and remove its data."""


SERVERS: dict[str, Callable[..., Server]] = {"postgresql": PostgresServer, "redis": ValkeyServer}
"""A new store with a server needs a line here."""


class Report(Struct, frozen=True, kw_only=True):
    """What was done, what was acknowledged meanwhile, and what was wrong."""

    kills: int
    workers: int
    runs: int
    acknowledged: int
    begun: int
    again: int
    violations: list[str]


def outages(drive: Drive, server: Server, count: int, tick: Tick = lambda _: None) -> Report:
    """Kill the server so many times while a fleet works, and judge."""
    for _ in range(_SUPERVISORS):
        drive.start_supervisor()
    workers = _SUPERVISORS * drive.processes
    drive.wait_until(lambda: len(drive.workers()) == workers, "workers")
    violations: list[str] = []
    for number in range(1, count + 1):
        _work(drive)
        server.kill()
        drive.news()
        if drive.random.random() < 0.3:
            time.sleep(drive.random.uniform(0, _MOST_DOWN_SECONDS))
        server.start()
        violations += [f"kill {number}: {one}" for one in _lost(drive)]
        tick(number)
    drive.finish()
    drive.news()
    violations += judge(drive.entries, drive.expected, drive.results())
    store = open_at(drive.home)
    violations += [f"{fault.run}: {fault.what}" for fault in store.verify()]
    store.close()
    begun = Counter((one.run, one.step) for one in drive.entries if one.fact is Fact.BEGIN)
    return Report(
        kills=count,
        workers=workers,
        runs=len(drive.expected),
        acknowledged=sum(one.fact is Fact.COMMITTED for one in drive.entries),
        begun=begun.total(),
        again=begun.total() - len(begun),
        violations=violations,
    )


def _work(drive: Drive) -> None:
    """Let the fleet work for a while, and return at some moment of it."""
    done = 0

    def is_busy() -> bool:
        nonlocal done
        drive.feed()
        done += sum(one.fact is Fact.COMMITTED for one in drive.news())
        return done >= _COMMITS_BETWEEN

    drive.wait_until(is_busy, "commits")
    time.sleep(drive.random.uniform(0, 0.1))  # anywhere: there is no moment to wait for


def _lost(drive: Drive) -> list[str]:
    """Return the acknowledged records that are not there."""
    told: dict[str, Entry] = {}
    for one in drive.entries:
        if one.fact is Fact.COMMITTED and one.length > told.get(one.run, one).length - 1:
            told[one.run] = one
    rows = {row.id: row for row in drive.store.list_runs(RunQuery(limit=100_000))}
    return [
        f"record {one.length - 1} of {run} was acknowledged and is lost"
        for run, one in told.items()
        if run not in rows or rows[run].length < one.length
    ]
