"""`ninelives check`: replay the unfinished runs against new code before it is deployed.

A child process loads the code and replays the runs, because the code may hang or exit. If the child hangs or
dies with a run, we report that run and start another child without it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, existing
from ninelives.cli.output import emit, emit_json, say
from ninelives.core.errors import StoreUnavailable, UsageError
from ninelives.ops.check import (
    EXIT_STORE,
    EXIT_USAGE,
    CheckBegun,
    CheckDone,
    CheckFinding,
    CheckFound,
    CheckOrder,
    Fit,
    Foreign,
    Line,
    hangs,
)
from ninelives.views.counted import counted
from ninelives.views.escape import shown

_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0
_MOST_RUNS = 3
_NOTHING = "Nothing was executed. "  # true of every check, so not worth repeating
_LINE = msgspec.json.Decoder(Line)


class CheckReport(msgspec.Struct, kw_only=True):
    """The findings, for machines."""

    fits: int = 0
    unused: int = 0
    moved: int = 0
    escalated: int = 0
    asked_again: int = 0
    problems: list[CheckFinding] = []
    warnings: list[CheckFinding] = []
    elsewhere: Counter[str] = msgspec.field(default_factory=Counter)


def check(target: str, url: str, *, limit_seconds: float, others: bool, as_json: bool) -> None:
    """Replay all unfinished runs. Exit 0 when all fit, 1 when some do not.

    A run whose agent the code does not declare does not fit, unless `others`: other workers have its code.
    A living worker is no proof of that: it may be the one that this code replaces.
    """
    if not limit_seconds > 0:
        raise UsageError(f"--limit {limit_seconds:g}", remedy="Give seconds above 0")
    report = CheckReport()
    skip: tuple[str, ...] = ()
    while True:
        request = CheckOrder(target=target, url=existing(url), limit_seconds=limit_seconds, skip=skip)
        lost = _rehearse(request, report)
        if lost is None:
            break
        report.problems.append(lost)
        skip = tuple(one.run for one in report.problems)
        report.fits, report.unused, report.elsewhere = 0, 0, Counter()
        report.moved, report.asked_again, report.escalated, report.warnings = 0, 0, 0, []
    _show(report, others=others, as_json=as_json)
    if report.problems or (report.elsewhere and not others):
        raise typer.Exit(EXIT_FAILED)


def _rehearse(request: CheckOrder, report: CheckReport) -> CheckFinding | None:
    """Replay the runs in a child process; return a finding for the run with which it hung or died."""
    command = [sys.executable, "-m", "ninelives.ops.check"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:  # noqa: S603
        begun: CheckBegun | None = None
        is_done = False
        try:
            _send(child, request)
            for line in _lines(child, request.limit_seconds):
                begun = line if isinstance(line, CheckBegun) else None
                is_done = isinstance(line, CheckDone)
                if isinstance(line, CheckFound):
                    _count(report, line.finding)
                elif isinstance(line, Foreign):
                    report.elsewhere[line.agent] += 1
            died = child.poll()
        finally:
            child.kill()
    if begun is None and child.returncode == EXIT_USAGE:
        raise typer.Exit(EXIT_USAGE)  # the child has printed why
    if begun is None and child.returncode == EXIT_STORE:
        raise typer.Exit(EXIT_STORE)
    if begun is None and child.returncode != 0:
        raise StoreUnavailable(f"the check of {request.target} died", remedy="See its output above")
    if begun is None and not is_done:
        raise UsageError(
            f"{request.target} ended the process while it was loaded or between two runs",
            remedy="The runs were not checked. Code outside of steps must not end the process",
        )
    if begun is None:
        return None
    if died is None:
        return hangs(begun.run, begun.agent, request.limit_seconds)
    how = f"exit code {died}" if died >= 0 else signal.Signals(-died).name
    return CheckFinding(
        run=begun.run,
        agent=begun.agent,
        fit=Fit.FAILS,
        what=f"the code ended the process, with {how}",
        remedy="Code outside of steps must not end the process",
    )


def _send(child: subprocess.Popen[bytes], request: CheckOrder) -> None:
    """Send the request through a pipe: thousands of runs to skip do not fit on a command line."""
    assert child.stdin is not None  # noqa: S101 (Popen got PIPE)
    with suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(msgspec.json.encode(request))


def _lines(child: subprocess.Popen[bytes], limit_seconds: float) -> Iterator[Line]:
    """Yield the child's messages until it closes the pipe or is silent for longer than the limit."""
    assert child.stdout is not None  # noqa: S101 (Popen got PIPE)
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


def _count(report: CheckReport, finding: CheckFinding) -> None:
    if finding.fit not in (Fit.FITS, Fit.FAILS_AS_BEFORE):
        report.problems.append(finding)
        return
    report.fits += 1
    report.unused += finding.unused
    report.moved += len(finding.moved)
    report.escalated += finding.is_escalated
    report.asked_again += len(finding.asked_again)
    if finding.has_warnings:
        report.warnings.append(finding)


# What people read ------------------------------------------------------------------------------------


def _show(report: CheckReport, *, others: bool, as_json: bool) -> None:
    if as_json:
        emit_json(report)
        return
    for agent, count in sorted(report.elsewhere.items()):
        say(
            f"{counted(count, 'run')} of agent {agent!r}, which this code does not declare: "
            "other workers are needed" + _unless_others(agent) * (not others)
        )
    if report.moved:
        moved = counted(report.moved, "recorded step has", "recorded steps have")
        say(f"{moved} moved to another position, which is fine")
    groups: dict[tuple[str, ...], list[CheckFinding]] = {}
    for one in report.warnings:
        for what, remedy in _warnings(one):
            groups.setdefault((one.agent, "warning", "", what, remedy), []).append(one)
    for one in report.problems:
        # Arguments and record numbers differ from run to run; group by the cause, which does not.
        cause = one.what.partition(":")[0] if one.fit is Fit.FAILS else ""
        key = (one.agent, str(one.fit), one.step or "", cause, one.remedy or "")
        groups.setdefault(key, []).append(one)
    for (agent, verdict, step, what, remedy), found in groups.items():
        _emit_group(agent, verdict, step, what if verdict == "warning" else found[0].what, remedy, found)
    if report.escalated:
        say(
            f"{counted(report.escalated, 'run that fits waits', 'runs that fit wait')} for a person "
            "(ninelives inbox): a run that was stopped "
            "for its code continues after ninelives resolve ITEM --retry"
        )
    unfit = len(report.problems) + (0 if others else report.elsewhere.total())
    fits = counted(report.fits, "unfinished run fits", "unfinished runs fit")
    say(f"{fits} this code, {counted(unfit, 'does', 'do')} not")


def _unless_others(agent: str) -> str:
    return (
        f'; if you renamed the agent, keep its name: @nl.agent(name="{agent}"); '
        "if other workers have its code, pass --other-agents"
    )


def _warnings(one: CheckFinding) -> Iterator[tuple[str, str]]:
    if one.fit is Fit.FAILS_AS_BEFORE:
        yield f"fails, as it would with the code that it ran with before: {one.what}", one.remedy or ""
    yield from ((warning.what, warning.remedy) for warning in one.warnings)


def _emit_group(
    agent: str, verdict: str, step: str, what: str, remedy: str, found: Sequence[CheckFinding]
) -> None:
    """Print one cause: its runs, the details of the first of them, and the remedy."""
    names = ", ".join(one.run for one in found[:_MOST_RUNS])
    more = f" and {len(found) - _MOST_RUNS} more" if len(found) > _MOST_RUNS else ""
    at = f" at {step}" if step else ""
    lines = [
        f"{verdict}{at}: {counted(len(found), 'run')} of {agent} ({names}{more})",
        what,
        *remedy.removeprefix(_NOTHING).split("; "),
    ]
    emit("\n    ".join(shown(line) for line in lines if line))
