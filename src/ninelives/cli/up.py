"""`ninelives worker` and `ninelives up`: a supervisor and its workers, until it is told to stop."""

from __future__ import annotations

import os
import sys

import typer

from ninelives.backends.clock import SystemClock
from ninelives.backends.open import open_store
from ninelives.cli.text import say
from ninelives.core.errors import UsageError
from ninelives.ops import doctor
from ninelives.ops.escape import shown
from ninelives.supervisor.fleet import Fleet
from ninelives.supervisor.order import Order


def keep(
    target: str,
    url: str,
    concurrency: int,
    processes: int | None,
    lease_seconds: float,
    hang_seconds: float,
    backoff_seconds: float,
) -> None:
    """Keep workers at work; without a number of processes, one for each CPU that we may use.

    Ends with 0 when told to stop, 2 if the code, 4 if the store cannot be used.
    """
    order = Order(
        target=target,
        url=url,
        concurrency=concurrency,
        processes=processes or len(os.sched_getaffinity(0)),
        lease_seconds=lease_seconds,
        hang_seconds=hang_seconds,
        backoff_seconds=backoff_seconds,
    )
    if order.url == "memory:":
        raise UsageError(
            "workers are processes of their own and cannot share memory:", remedy="Use sqlite:///PATH"
        )
    for option, seconds in (("--lease", order.lease_seconds), ("--hang", order.hang_seconds)):
        if not seconds > 0:
            raise UsageError(f"{option} {seconds:g}", remedy="Give seconds above 0")
    store = open_store(order.url)
    doctor.prove(store)
    fleet = Fleet(order, store, SystemClock(), tell=say, hear=_hear)
    code = fleet.run()
    # CRASH: whatever is not closed here is closed by the kernel; nothing is flushed that matters.
    sys.stdout.flush()
    store.close()
    raise typer.Exit(code)


def _hear(worker: int, line: str) -> None:
    try:
        os.write(2, f"worker {worker}: {shown(line)}\n".encode(errors="backslashreplace"))
    except OSError:
        return  # nobody reads our log: the workers go on
