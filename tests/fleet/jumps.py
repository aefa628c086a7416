"""Wall clocks that jump: the workers of a fleet see another time than the store, and than each other.

On a server's store each supervisor's workers have a clock of their own; on a file all have the same, and so
has who starts runs, for they are one host.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack

from tests.crash.stores import is_file
from tests.fleet.clocks import Clock
from tests.fleet.driver import Drive
from tests.fleet.nemesis import Report, Tick, end

_HOUR_SECONDS = 3600
_TIMES, _FAST_SECONDS = 10, 1.0
_NAPPERS = ("fleet.nap", "fleet.nap", "fleet.shop", "fleet.chain")


def jumps(drive: Drive, count: int, tick: Tick = lambda _: None) -> Report:
    """Set the workers' clocks an hour ahead and back, and let them run ten times as fast."""
    hit: Counter[str] = Counter()
    with ExitStack() as stack:
        clocks = [Clock(drive.home / f"clock-{number}") for number in range(2)]
        if is_file(drive.home):
            del clocks[1]
            stack.enter_context(clocks[0].gone_by())
        else:
            drive.agents = _NAPPERS  # a host's own jumps reach what sleeps on it
        for number in range(2):
            drive.start_supervisor(more={"FLEET_CLOCK": str(clocks[number % len(clocks)].path)})
        drive.wait_until(drive.workers, "workers")
        while hit.total() < count:
            clock = drive.random.choice(clocks)
            what = drive.random.choice(("an hour ahead", "an hour behind", "ten times as fast", "right"))
            clock.set({"an hour ahead": _HOUR_SECONDS, "an hour behind": -_HOUR_SECONDS}.get(what, 0))
            if drive.random.random() < 0.3:
                drive.kill_worker()
            _carry_on(drive, clock if what == "ten times as fast" else None)
            hit[what] += 1
            tick(min(count, hit.total()))
        return end(drive, hit)


def _carry_on(drive: Drive, fast: Clock | None) -> None:
    """Wait until so many more runs were started that as many have come to their ends by this time."""
    began, already = time.monotonic(), len(drive.expected)

    def is_over() -> bool:
        drive.feed()
        spent = time.monotonic() - began
        if fast is not None:
            fast.set(spent * (_TIMES - 1))
        is_long_enough = fast is None or spent > _FAST_SECONDS
        return is_long_enough and len(drive.expected) >= already + drive.in_flight

    drive.wait_until(is_over, "runs to end in spite of the clocks", must=False)
