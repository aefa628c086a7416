"""Inside a commit: a steady writer is killed at each of its system calls that change the disk.

Random kills find a torn commit once in thirty times; this finds it every time, for it stops at each write.
"""

from __future__ import annotations

from typing import Any

from tests.crash import syscalls
from tests.crash.campaign import CHECK, Told
from tests.crash.forkserver import ForkServer
from tests.crash.stores import scratch

STEADY = "tests.crash.disk:steady"
_APPENDS = 5


def kill_commits(
    server: ForkServer,
    *,
    every: int = 1,
    only: str = "",
    mutant: str = "",
    told: Told = lambda _done, _all: None,
) -> tuple[int, list[str]]:
    """Kill a writer at its system calls; returns how many kills, and what went wrong."""
    kills, violations = 0, []
    with scratch() as home:
        counts = syscalls.count_calls(server, STEADY, **_work(server, str(home), mutant))
    points = [
        (call, when)
        for call in ("pwrite64", "fdatasync", "write")
        if not only or call == only
        for when in range(1, counts.get(call, 0) + 1, every)
    ]
    for done, (call, when) in enumerate(points, 1):
        told(done, len(points))
        with scratch() as home:
            kills += syscalls.kill_at(server, STEADY, call, when, **_work(server, str(home), mutant))
            found: list[str] = server.run(CHECK, home=str(home)).result()
            violations += [f"killed at {call} {when}: {violation}" for violation in found]
    return kills, violations


def _work(server: ForkServer, home: str, mutant: str) -> dict[str, Any]:
    """Make the store, so that only commits are left to be killed; returns the writer's arguments."""
    where: dict[str, Any] = {"home": home, "ledger": f"{home}/ledger", "appends": _APPENDS}
    server.run(STEADY, name="before", **where).result()
    return where | {"mutant": mutant, "name": "steady"}
