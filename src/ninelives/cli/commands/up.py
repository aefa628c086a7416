"""`ninelives worker` and `ninelives up`: run a supervisor and its workers until a signal stops them."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ninelives.cli.options import age_ms, interval_ms, policy_path, to_be_created, ungoverned
from ninelives.core.errors import StoreAway, UsageError
from ninelives.logs.log_format import LogFormat
from ninelives.logs.output import LogPrinter, print_line, shaped
from ninelives.ops import doctor
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import open_store
from ninelives.supervisor.companions import Companion
from ninelives.supervisor.protocol import WorkerSettings
from ninelives.supervisor.supervisor import Supervisor

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
    log: LogFormat,
    companions: Sequence[Companion] = (),
    *,
    policy: Path | None = None,
) -> None:
    """Supervise workers, by default one process per CPU that this process may use, and companions.

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
        log=log,
        policy=policy_path(policy),
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
    new_store = to_be_created(url)
    store = _opened(options)
    if new_store:
        _say(log, f"created a new store: {new_store}")
    if not options.policy and (warning := ungoverned(store)):
        _say(log, warning, logging.WARNING)
    code = _supervise(options, store, [*companions, *_audit_log(store)])
    # CRASH: the kernel closes whatever we do not; nothing that matters is flushed here.
    sys.stdout.flush()
    store.close()
    raise typer.Exit(code)


def _audit_log(store: AnyStore) -> list[Companion]:
    """Return what follows the journals, if the store has an audit log that is on."""
    from ninelives.governance.audit_log.entries import is_on

    return [Companion("audit-log", ("audit", "follow"))] if is_on(store) else []


def companions(
    metrics_port: int | None,
    metrics_host: str,
    audit_every: str = "",
    *,
    notify: Path | None = None,
    keep: str = "",
    replicate: str = "",
) -> list[Companion]:
    """Return the commands that `up` keeps running beside its workers. Raises UsageError."""
    found = []
    if metrics_port is not None:
        if find_spec("prometheus_client") is None:
            raise UsageError("metrics need prometheus-client", remedy="pip install 'ninelives[metrics]'")
        words = ("metrics", "--port", str(metrics_port), "--host", metrics_host)
        found.append(Companion("metrics", words))
    if audit_every:
        interval_ms(
            "--audit-every", audit_every
        )  # refused now, and not by a companion that is started again and again
        found.append(Companion("audit", ("store", "audit", "--every", audit_every)))
    if notify is not None:
        from ninelives.cli.operate.notify import settings_of

        settings_of(notify)  # a mistake in it is reported here, not by a companion that dies again and again
        found.append(Companion("notify", ("notify", "--config", str(notify.resolve()))))
    if keep:
        age_ms(keep)  # a mistyped age is an error here, not in a companion that is restarted again and again
        found.append(Companion("retain", ("store", "retain", "--keep", keep, "--every", "1h")))
    if replicate:
        from ninelives.ops.replication.opening import open_bucket

        open_bucket(replicate)
        found.append(Companion("replicate", ("store", "replicate", replicate, "--standby")))
    return found


def _supervise(options: WorkerSettings, store: AnyStore, companions: Sequence[Companion]) -> int:
    """Run the supervisor; on a terminal, with the screen below its lines, unless they are JSON."""
    with ExitStack() as closing:
        write = print_line
        if options.log is LogFormat.TEXT and sys.stderr is not None and sys.stderr.isatty():
            from ninelives.cli.up_screen import Board

            board = Board(store)
            closing.enter_context(board.drawn())
            write = board.print_line
        printer = LogPrinter(options.log, write)
        closing.callback(printer.close)
        return Supervisor(
            options,
            store,
            SystemClock(),
            report=printer.report,
            on_output=printer.on_output,
            warn=partial(printer.report, level=logging.WARNING),
            fail=partial(printer.report, level=logging.ERROR),
            companions=companions,
        ).run()


def _say(form: LogFormat, line: str, level: int = logging.INFO) -> None:
    """Print a line of the log before the supervisor runs."""
    with suppress(OSError):
        print_line(shaped(form, line, level))


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
                _say(options.log, f"{error.what}; waiting for it, {options.patience_seconds:g} s at most")
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
