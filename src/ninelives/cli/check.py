"""`ninelives check`: would the runs in flight go on with this code? Asked before it is deployed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, existing
from ninelives.cli.text import emit_json, emit_table, say
from ninelives.core.errors import StoreUnavailable, UsageError
from ninelives.ops.rehearsal import (
    EXIT_STORE,
    EXIT_USAGE,
    Begun,
    Finding,
    Fit,
    Foreign,
    Found,
    Line,
    Order,
    hangs,
)

_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0
_LINE = msgspec.json.Decoder(Line)


class Report(msgspec.Struct, kw_only=True):
    """What was found, for machines."""

    fits: int = 0
    unused: int = 0
    problems: list[Finding] = []
    elsewhere: Counter[str] = msgspec.field(default_factory=Counter)


def check(target: str, url: str, *, limit_seconds: float, as_json: bool) -> None:
    """Rehearse all runs in flight. Exit 0 when all fit, 1 when some do not."""
    if not limit_seconds > 0:
        raise UsageError(f"--limit {limit_seconds:g}", remedy="Give seconds above 0")
    report = Report()
    skip: tuple[str, ...] = ()
    while True:
        order = Order(target=target, url=existing(url), limit_seconds=limit_seconds, skip=skip)
        lost = _rehearse(order, report)
        if lost is None:
            break
        report.problems.append(lost)
        skip = tuple(one.run for one in report.problems)
        report.fits, report.unused, report.elsewhere = 0, 0, Counter()
    _show(report, as_json=as_json)
    if report.problems:
        raise typer.Exit(EXIT_FAILED)


def _rehearse(order: Order, report: Report) -> Finding | None:
    """Have a child try the runs; returns what to say of the one with which it stood still or died."""
    command = [sys.executable, "-m", "ninelives.ops.rehearsal"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:  # noqa: S603
        begun: Begun | None = None
        try:
            _send(child, order)
            for line in _lines(child, order.limit_seconds):
                begun = line if isinstance(line, Begun) else None
                if isinstance(line, Found):
                    _count(report, line.finding)
                elif isinstance(line, Foreign):
                    report.elsewhere[line.agent] += 1
            died = child.poll()
        finally:
            child.kill()
    if begun is None and child.returncode == EXIT_USAGE:
        raise typer.Exit(EXIT_USAGE)  # it has said why
    if begun is None and child.returncode == EXIT_STORE:
        raise typer.Exit(EXIT_STORE)
    if begun is None and child.returncode != 0:
        raise StoreUnavailable(f"the check of {order.target} died", remedy="Look at what it said above")
    if begun is None:
        return None
    if died is None:
        return hangs(begun.run, begun.agent, order.limit_seconds)
    how = f"exit code {died}" if died >= 0 else signal.Signals(-died).name
    return Finding(
        run=begun.run,
        agent=begun.agent,
        fit=Fit.FAILS,
        what=f"the code ended the process, with {how}",
        remedy="Code outside of steps must not leave the process",
    )


def _send(child: subprocess.Popen[bytes], order: Order) -> None:
    """Tell the child what to do: by a pipe, since thousands of runs to skip are too long for a command."""
    assert child.stdin is not None  # noqa: S101 (a pipe was asked for)
    with suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(msgspec.json.encode(order))


def _lines(child: subprocess.Popen[bytes], limit_seconds: float) -> Iterator[Line]:
    """Yield what the child says, for as long as it says something in time."""
    assert child.stdout is not None  # noqa: S101 (a pipe was asked for)
    pipe, rest = child.stdout.fileno(), b""
    deadline = time.monotonic() + _START_SECONDS + limit_seconds
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(pipe, 65536) if ready else b""
        if not data:
            if ready:
                child.wait(_GRACE_SECONDS)
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from (_LINE.decode(line) for line in whole)
        deadline = time.monotonic() + limit_seconds + _GRACE_SECONDS


def _count(report: Report, finding: Finding) -> None:
    if finding.fit is Fit.FITS:
        report.fits += 1
        report.unused += finding.unused
    else:
        report.problems.append(finding)


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        emit_json(msgspec.json.encode(report))
        return
    for agent, count in sorted(report.elsewhere.items()):
        say(f"{count} runs of agent {agent!r}, which this code does not declare: they need other workers")
    if report.unused:
        say(f"{report.unused} recorded steps are asked for no more: left out, which is no divergence")
    if report.problems:
        rows = [
            (one.run, one.agent, str(one.fit), one.step or "", one.what, one.remedy or "")
            for one in report.problems
        ]
        emit_table(("run", "agent", "verdict", "step", "what", "remedy"), rows)
    say(f"{report.fits} runs in flight fit this code, {len(report.problems)} do not")
