"""A sync that fails: it is never acknowledged and never tried again; the process ends and the next one reads.

The kernel drops the pages of a failed sync and says that all is well the next time: who tries again is
told a lie. So each sync of a writer's life is made to fail once, in a process of its own.
"""

from __future__ import annotations

from typing import Any

from ninelives.engine.commit.committer import EXIT_CODE
from tests.crash import syscalls
from tests.crash.forkserver import ForkServer
from tests.crash.stores import scratch

STEADY, CHECK = "tests.crash.disk:steady", "tests.crash.judge:check"


def fail_each(server: ForkServer, *, every: int = 1, mutant: str = "") -> tuple[int, list[str]]:
    """Let each sync of a writer fail; returns how many were made to, and what went wrong."""
    violations: list[str] = []
    with scratch() as home:
        where: dict[str, Any] = {"home": str(home), "ledger": str(home / "ledger")}
        server.run(STEADY, name="before", **where)
        syncs = syscalls.count_calls(server, STEADY, name="counted", **where)["fdatasync"]
    failed = 0
    for when in range(1, syncs + 1, every):
        with scratch() as home:
            where = {"home": str(home), "ledger": str(home / "ledger")}
            server.run(STEADY, name="before", **where)
            code, file, after = syscalls.fail_at(server, STEADY, "fdatasync", when, mutant=mutant, **where)
            if file == str(home):
                continue  # SQLite syncs the directory once more, for names that have long been durable
            failed += 1
            if after:
                violations.append(f"sync {when} failed and {after} more were made")
            if code != EXIT_CODE:
                violations.append(f"sync {when} failed and the process ended with {code}, not {EXIT_CODE}")
            found: list[str] = server.run(CHECK, home=str(home)).result()
            violations += [f"sync {when} failed: {violation}" for violation in found]
    return failed, violations
