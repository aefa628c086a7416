"""Two worker hosts and a store host; the network between them is cut, one way or both, or breaks off.

While a host is cut off, the other one takes its runs when its lease has run out; the cut-off one begins no
body after that, and when it returns, what it still wants to write is refused. The fleet's ledger, which needs
no network, and its judge say so; by the store's own clock the runs are another's a second after the lease at
most. `python -m tests.servers.partitions` is the long form.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.store import Store
from tests.crash.stores import place
from tests.fleet.driver import Drive
from tests.fleet.judge import judge
from tests.fleet.ledger import Fact
from tests.proof import report as proof
from tests.servers.hosts import Host, Way, leave_network
from tests.servers.outages import SERVERS
from tests.servers.proxy import Proxy

WAYS: tuple[Way, ...] = ("both", "in", "out")
_CUTS = 20
_RESETS, _RUNS = 10, 10  # no more runs than one worker takes at once: the other has room for all of them
_SAID_SECONDS = 1.0  # what was admitted just before the end of a lease says so a moment later
_TAKEN_AND_GIVEN = 2
"""How much the epoch of a run has grown by then."""
LATE_SECONDS = 1.0
"""How long after the end of a lease its runs may be nobody's: it is promised."""
_ALL = 10_000
NO_NAMESPACES = 77
"""The exit code where this machine has none."""


class Report(Struct, frozen=True, kw_only=True):
    """What was done: `takeovers` has the seconds from each cut until its last run was seen in new hands.

    `taken` has them by the store's clock, from the cut, or from a renewal that was still heard after it.
    `renewals` tells when a lease was last renewed, as seconds after the cut (a host that only cannot hear may
    still be heard), `ends` how long after the end of its lease a session was ended.
    """

    lease_seconds: float
    takeovers: dict[str, float]
    taken: dict[str, float]
    renewals: dict[str, float]
    ends: dict[str, float]
    returns: dict[str, float]
    resets: int
    runs: int
    violations: list[str]


class Loss(Struct, frozen=True):
    """The runs that a cut-off host had, as which sessions, and when it was last heard by the store."""

    runs: tuple[str, ...]
    sessions: frozenset[str]
    heard_ms: int

    def seconds(self, store: Store) -> float:
        """Return how long it took until the last of them was another's."""
        taken = [
            one.taken_ms
            for run in self.runs
            for one in _recoveries(store, run)
            if one.left_by in self.sessions
        ]
        return (max(taken, default=self.heard_ms) - self.heard_ms) / 1000


def _recoveries(store: Store, run: str) -> list[Recovery]:
    entries = store.read_log(run=run, limit=_ALL)
    return [
        msgspec.json.decode(one.body, type=Recovery) for one in entries if one.kind is Happening.RECOVERED
    ]


def late(taken: dict[str, float], lease_seconds: float, late_seconds: float) -> list[str]:
    """Return the cuts after which runs were not another's in time."""
    most = lease_seconds + late_seconds
    return [
        f"{way}: taken over after {seconds:g} s, which is not within {most:g} s"
        for way, seconds in taken.items()
        if not 0 < seconds <= most  # 0: the recovery log tells of no takeover
    ]


class Side:
    """A worker host: its network, and its supervisor, which knows the store at a port."""

    def __init__(self, host: Host, drive: Drive, port: int) -> None:
        self.host = host
        store = urlsplit(drive.url)
        user = f"{store.username}@" if store.username else ""
        url = store._replace(netloc=f"{user}{host.near}:{port}").geturl()
        self._supervisor = self.host.run(lambda: drive.start_supervisor(url))

    def workers(self) -> set[int]:
        """Return its workers."""
        pid = self._supervisor.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


class Scene:
    """Both hosts, and what happens to them."""

    def __init__(self, drive: Drive, left: Side, right: Side, lease_seconds: float) -> None:
        self._drive, self._lease_seconds = drive, lease_seconds
        self._left, self._right = left, right
        self.takeovers: dict[str, float] = {}
        self.renewals: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.returns: dict[str, float] = {}
        self.losses: dict[str, Loss] = {}
        self.violations: list[str] = []

    def cut(self, way: Way) -> None:
        """Cut one host off until the other has its runs, and for another lease; then let it return."""
        drive = self._drive
        cut_off, cut_at, cut_ms, theirs, held = self._cut_off(way)
        drive.wait_until(lambda: self._are_taken(held), "the runs of the cut-off host to be taken")
        self.takeovers[way] = round(time.monotonic() - cut_at, 2)
        lost = [one for name in theirs if (one := drive.store.read_session(name)) is not None]
        self.renewals[way] = max(one.renewed_ms - cut_ms for one in lost) / 1000
        heard_ms = max([cut_ms, *(one.renewed_ms for one in lost)])
        self.losses[way] = Loss(tuple(held), frozenset(theirs), heard_ms)
        self.ends[way] = max((one.ended_ms or 0) - one.renewed_ms - one.lease_ms for one in lost) / 1000
        self._wait(cut_at + self._lease_seconds + _SAID_SECONDS)
        for pid in cut_off:
            drive.ledger.write(Fact.WAKES, step=f"cut off: {way}", pid=pid)
        drive.news()
        mark = len(drive.entries)
        self._wait(time.monotonic() + self._lease_seconds)
        self._left.host.mend(way)
        mended_at = time.monotonic()
        self.work(self._left)
        self.returns[way] = round(time.monotonic() - mended_at, 2)
        begun = [one for one in drive.entries[mark:] if one.fact is Fact.BEGIN and one.pid in cut_off]
        self.violations += [
            f"{way}: {one.run}'s step {one.step} began in {one.pid}, cut off, after its lease"
            for one in begun
        ]

    def _cut_off(self, way: Way) -> tuple[set[int], float, int, set[str], dict[str, int]]:
        """Cut the left host off while it has runs; returns its workers, when, its sessions, those runs."""
        store = self._drive.store
        for _ in range(_CUTS):
            self.work(self._left, self._right)
            cut_off = self._left.workers()
            self._left.host.cut(way)
            cut_at, cut_ms = time.monotonic(), store.now_ms()
            theirs = {one.id for one in store.list_sessions() if one.pid in cut_off}
            held = {row.id: row.epoch for row in self._running() if row.session in theirs}
            if held:
                return cut_off, cut_at, cut_ms, theirs, held
            self._left.host.mend(way)  # it was between two runs: nothing can be taken from it
        raise AssertionError(f"in {_CUTS} cuts the host never had a run")

    def reset(self, proxy: Proxy, times: int) -> None:
        """Break connections in the middle of an answer, under load."""
        for number in range(1, times + 1):
            proxy.reset_in_answer()
            self._drive.wait_until(lambda cuts=number: self._feed() and proxy.cuts >= cuts, "an answer")  # type: ignore[misc]
        self.work(self._left, self._right)

    def work(self, *sides: Side) -> None:
        """Wait until workers of these hosts have written something, from now on."""
        wrote: set[int] = set()

        def have_all() -> bool:
            self._feed()
            wrote.update(one.pid for one in self._drive.news() if one.fact is Fact.COMMITTED)
            return all(wrote & side.workers() for side in sides)

        self._drive.wait_until(have_all, "work on the hosts")

    def _feed(self) -> bool:
        self._drive.feed()
        return True

    def _wait(self, until: float) -> None:
        self._drive.wait_until(lambda: self._feed() and time.monotonic() > until, "time to pass")

    def _running(self) -> list[RunRow]:
        return self._drive.store.list_runs(RunQuery(states=(State.RUNNING,), limit=1000))

    def _are_taken(self, held: dict[str, int]) -> bool:
        """Tell whether the runs were taken from who held them, and given to others."""
        self._feed()
        rows = [row for run in held if (row := self._drive.store.read_run(run)) is not None]
        return all(row.state.is_final or row.epoch >= held[row.id] + _TAKEN_AND_GIVEN for row in rows)


def perform(
    store: str, seed: int, lease_seconds: float, ways: Sequence[Way], late_seconds: float = LATE_SECONDS
) -> Report:
    """Play all, in this process, which has a network of its own."""
    server = SERVERS[store](listen="0.0.0.0")
    with ExitStack() as stack:
        stack.callback(server.remove)
        home = place(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts-"))), server.url)
        drive = stack.enter_context(
            Drive(home, seed=seed, processes=1, lease_seconds=lease_seconds, in_flight=_RUNS)
        )
        port = urlsplit(server.url).port
        assert port is not None
        hosts = [stack.enter_context(Host(number)) for number in (1, 2)]
        proxy = stack.enter_context(Proxy(port, hosts[1].near))
        scene = Scene(drive, Side(hosts[0], drive, port), Side(hosts[1], drive, proxy.port), lease_seconds)
        for way in ways:
            scene.cut(way)
        scene.reset(proxy, _RESETS)
        drive.finish()
        drive.news()
        taken = {way: loss.seconds(drive.store) for way, loss in scene.losses.items()}
        violations = scene.violations + late(taken, lease_seconds, late_seconds)
        violations += judge(drive.entries, drive.expected, drive.results())
        return Report(
            lease_seconds=lease_seconds,
            takeovers=scene.takeovers,
            taken=taken,
            renewals=scene.renewals,
            ends=scene.ends,
            returns=scene.returns,
            resets=proxy.cuts,
            runs=len(drive.expected),
            violations=violations + ([drive.log()] if violations else []),
        )


def main() -> int:
    """Play it in a network of our own; what was seen goes to the report, or to stdout."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.partitions", description=__doc__)
    parser.add_argument("--store", choices=SERVERS, default="postgresql")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--late", type=float, default=LATE_SECONDS, help="seconds after a lease")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    again = f"python -m tests.servers.partitions --store {given.store} --seed {given.seed}"
    told = proof.Report(again=again, store=given.store, seconds=0.0, sections=[])
    name = "a host cut off both ways, one way, resets"
    try:
        leave_network()
        Host(0).__exit__()
    except OSError as error:
        reason = f"hosts need network namespaces and virtual links (root, CAP_NET_ADMIN): {error}"
        print(reason)
        told.sections.append(proof.Result(name, "not run", reason))
        proof.write(given.report, told)
        return 0 if given.report else NO_NAMESPACES
    for number in range(given.rounds):
        report = perform(given.store, given.seed + number, given.lease, given.ways, given.late)
        numbers = (
            f"lease {report.lease_seconds:g} s, taken over after {report.taken}, sessions ended"
            f" {report.ends} s after their lease, {report.resets} resets,"
            f" {report.runs} runs, {len(report.violations)} violations"
        )
        told.sections.append(proof.judged(name, numbers, report.violations))
        if given.report is None:
            os.write(1, msgspec.json.encode(report) + b"\n")
        else:
            proof.tell(told.sections[-1])
    proof.write(given.report, replace(told, seconds=round(time.monotonic() - began)))
    return int(told.is_violated)


if __name__ == "__main__":
    sys.exit(main())
