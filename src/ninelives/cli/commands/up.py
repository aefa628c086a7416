"""`ninelives worker` and `ninelives up`: run a supervisor and its workers until a signal stops them."""

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
from ninelives.supervisor.protocol import WorkerSettings
from ninelives.supervisor.supervisor import Supervisor
from ninelives.views.escape import shown

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

SHORTEST_LEASE_SECONDS = 0.2
"""A renewal may wait for the disk and for other processes; with less, workers would lose their leases."""
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
    """Supervise workers; by default one process per CPU that this process may use.

    Exit 0 after a signal to stop, 2 if the code cannot be used, 4 if the store cannot.
    """
    options = WorkerSettings(
        target=target,
        url=url,
        concurrency=concurrency,
        limits=_limits(limits),
        processes=processes or len(os.sched_getaffinity(0)),
        lease_seconds=lease_seconds,
        hang_seconds=hang_seconds,
        backoff_seconds=backoff_seconds,
    )
    if options.url == "memory:":
        raise UsageError(
            "workers are separate processes and cannot share memory:", remedy="Use sqlite:///PATH"
        )
    for option, seconds in (("--lease", options.lease_seconds), ("--hang", options.hang_seconds)):
        if not seconds > 0:
            raise UsageError(f"{option} {seconds:g}", remedy="Give seconds above 0")
    if options.lease_seconds < SHORTEST_LEASE_SECONDS:
        raise UsageError(
            f"--lease {options.lease_seconds:g} expires before it can be renewed",
            remedy=f"Give at least {SHORTEST_LEASE_SECONDS:g} seconds",
        )
    store = _opened(options)
    if sys.stderr is not None and sys.stderr.isatty():
        from ninelives.cli.up_screen import Board

        board = Board(store)
        with board.drawn():
            code = Supervisor(
                options, store, SystemClock(), report=board.print_event, on_output=board.print_output
            ).run()
    else:
        code = Supervisor(options, store, SystemClock(), report=say, on_output=_print_output).run()
    # CRASH: the kernel closes whatever we do not; nothing that matters is flushed here.
    sys.stdout.flush()
    store.close()
    raise typer.Exit(code)


def _opened(options: WorkerSettings) -> AnyStore:
    """Open the store and prove that it is writable; wait for a server that is not reachable yet.

    Machines start in any sequence, and a killed server takes time to recover. After `patience_seconds` we
    give up, and the process manager that started us may try again.
    """
    deadline = time.monotonic() + options.patience_seconds
    reported = ""
    while True:
        try:
            with ExitStack() as closing:
                store = open_store(options.url)
                closing.callback(store.close)
                doctor.prove(store)
                closing.pop_all()
                return store
        except StoreAway as error:
            if time.monotonic() > deadline:
                raise
            if error.what != reported:
                say(f"{error.what}; waiting for it, {options.patience_seconds:g} s at most")
            reported = error.what
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


def _print_output(worker: int, line: str) -> None:
    try:
        os.write(2, f"worker {worker}: {shown(line)}\n".encode(errors="backslashreplace"))
    except OSError:
        return  # our log is closed, which must not stop the workers
