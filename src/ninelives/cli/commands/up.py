"""`ninelives worker` and `ninelives up`: a supervisor and its workers, until it is told to stop."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from ninelives.cli.output import say
from ninelives.core.errors import StoreAway, UsageError
from ninelives.ops import doctor
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import open_store
from ninelives.supervisor.protocol import WorkerOrder
from ninelives.supervisor.supervisor import Supervisor
from ninelives.views.escape import shown

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

SHORTEST_LEASE_SECONDS = 0.2
"""A renewal may have to wait for a disk and for other processes; below this, workers lose their leases."""
_PAUSE_SECONDS = 0.5


def keep(
    target: str,
    url: str,
    concurrency: int,
    limits: list[str],
    processes: int | None,
    lease_seconds: float,
    hang_seconds: float,
    backoff_seconds: float,
) -> None:
    """Keep workers at work; without a number of processes, one for each CPU that we may use.

    Ends with 0 when told to stop, 2 if the code, 4 if the store cannot be used.
    """
    order = WorkerOrder(
        target=target,
        url=url,
        concurrency=concurrency,
        limits=_limits(limits),
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
    if order.lease_seconds < SHORTEST_LEASE_SECONDS:
        raise UsageError(
            f"--lease {order.lease_seconds:g} runs out before it can be renewed",
            remedy=f"Give at least {SHORTEST_LEASE_SECONDS:g} seconds",
        )
    store = _opened(order)
    if sys.stderr is not None and sys.stderr.isatty():
        from ninelives.cli.up_screen import Board

        board = Board(store)
        with board.drawn():
            code = Supervisor(order, store, SystemClock(), tell=board.tell, hear=board.hear).run()
    else:
        code = Supervisor(order, store, SystemClock(), tell=say, hear=_hear).run()
    # CRASH: whatever is not closed here is closed by the kernel; nothing is flushed that matters.
    sys.stdout.flush()
    store.close()
    raise typer.Exit(code)


def _opened(order: WorkerOrder) -> AnyStore:
    """Open the store, and prove that it can be written to; one that is not there yet is waited for.

    Machines are started in any order, and a server that was killed takes a while to recover. After a while
    whoever started us may try again.
    """
    deadline = time.monotonic() + order.patience_seconds
    told = ""
    while True:
        try:
            with ExitStack() as closing:
                store = open_store(order.url)
                closing.callback(store.close)
                doctor.prove(store)
                closing.pop_all()
                return store
        except StoreAway as error:
            if time.monotonic() > deadline:
                raise
            if error.what != told:
                say(f"{error.what}; waiting for it, {order.patience_seconds:g} s at most")
            told = error.what
            time.sleep(_PAUSE_SECONDS)


def _limits(given: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        agent, equals, most = text.rpartition("=")
        if not equals or not most.isascii() or not most.isdigit():
            raise UsageError(f"--limit {text!r}", remedy="Write it as AGENT=N, N a number of runs")
        if agent in found:
            raise UsageError(f"--limit is given twice for agent {agent!r}", remedy="Give it once")
        found[agent] = int(most)
    return found


def _hear(worker: int, line: str) -> None:
    try:
        os.write(2, f"worker {worker}: {shown(line)}\n".encode(errors="backslashreplace"))
    except OSError:
        return  # nobody reads our log: the workers go on
