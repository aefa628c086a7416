"""`ninelives status`: is it healthy, and if not, why; for people and for monitoring."""

from __future__ import annotations

import time
from collections.abc import Iterator

import typer

from ninelives.cli.options import EXIT_FAILED, opened
from ninelives.cli.output import age, emit, emit_json, is_terminal
from ninelives.ops.disk_growth import note_size
from ninelives.ops.status import status as read
from ninelives.ops.status_facts import Status
from ninelives.ops.status_problems import policy_text
from ninelives.views.counted import counted
from ninelives.views.escape import shortened, shown

_TEXT_CHARACTERS = 300


def status(url: str, *, watch: float | None, as_json: bool) -> None:
    """Print the state of the fleet; exit 1 when it is not healthy."""
    while True:
        with opened(url) as store:
            found = read(store, url)
            note_size(store, store.now_ms(), found.used_bytes)
        if as_json:
            emit_json(found)
        else:
            emit("\n".join(lines(found)))
        if watch is None:
            raise typer.Exit(0 if found.healthy else EXIT_FAILED)
        time.sleep(watch)
        emit("")


def lines(found: Status) -> Iterator[str]:
    """Yield what people read."""
    head = "healthy" if found.healthy else "NOT healthy"
    if is_terminal():
        head = typer.style(head, fg=typer.colors.GREEN if found.healthy else typer.colors.RED)
    yield f"{head} ({shown(found.store)}, {found.at:%Y-%m-%d %H:%M:%S}Z)"
    for problem in found.problems:
        yield f"  - {shortened(problem.text, _TEXT_CHARACTERS)}"
    for name, text in _facts(found):
        yield f"{name:<13}{shortened(text, _TEXT_CHARACTERS)}"


def _facts(found: Status) -> Iterator[tuple[str, str]]:
    yield from _of_runs(found)
    yield from _of_people(found)
    yield from _of_halts(found)
    yield from _of_recoveries(found)
    yield from _of_upkeep(found)
    yield from _of_notices(found)
    yield from _of_audit_log(found)
    yield "disk", _disk(found)


def _of_runs(found: Status) -> Iterator[tuple[str, str]]:
    counts = ", ".join(f"{count} {state}" for state, count in found.runs.items() if count)
    more = "; only the newest were read" if found.is_partial else ""
    yield "runs", (counts or "none unfinished") + (f"; {found.paused} paused" if found.paused else "") + more
    yield "workers", f"{found.workers}, for {', '.join(found.agents)}" if found.workers else "none"
    if found.policies:
        each = ", ".join(f"{policy_text(one)} ({counted(one.workers, 'worker')})" for one in found.policies)
        yield "policies", each
    yield "failed", f"{found.failed_hour} in the last hour, {found.failed_day} in the last day"
    for failure in found.failed:
        yield "", f"{failure.day} of {failure.agent}, last {failure.example}: {failure.error}"
    count = found.retried_runs
    when = "when it is over" if found.workers else "when it is over and a worker runs"
    yield "retried", f"{counted(count, 'run goes', 'runs go')} on {when}" if count else "nothing"
    for one in found.retried:
        attempt = f"attempt {one.most_attempts + 1} of {one.of}"
        yield "", f"{one.runs} of {one.agent} at {one.step}, {attempt}: {one.error}"


def _of_people(found: Status) -> Iterator[tuple[str, str]]:
    now = found.at.timestamp()
    items = ", ".join(
        f"{one.items} {one.kind} of {one.agent} (oldest {age(now - one.oldest.timestamp())})"
        for one in found.waits
    )
    yield "for people", items or "nothing"


def _of_halts(found: Status) -> Iterator[tuple[str, str]]:
    now = found.at.timestamp()
    for one in found.halts:
        end = f", until {one.until:%Y-%m-%d %H:%M:%S}Z" if one.until is not None else ""
        since = f"{age(now - one.since.timestamp())} ago"
        held = f"; {counted(one.runs, 'run waits', 'runs wait')}" if one.runs else ""
        yield "halted", f"{one.what}, by {one.by} {since}{end}: {one.reason} ({one.id}){held}"
    for breaker in found.breakers:
        opened = counted(breaker.opened, "time")
        held = f"; {counted(breaker.runs, 'run waits', 'runs wait')}" if breaker.runs else ""
        yield "breaker", f"{breaker.step} is open, opened {opened}: {breaker.error}{held}"
    for budget in found.budgets:
        runs = counted(budget.runs, "run waits", "runs wait")
        until = f"until {budget.until:%Y-%m-%d %H:%M}Z"
        yield "budget", f"{budget.budget} {budget.whose} is used up: {runs} {until}"


def _of_recoveries(found: Status) -> Iterator[tuple[str, str]]:
    numbers = found.recovery
    p99 = f", 99 % within {numbers.p99_seconds:g} s" if numbers.p99_seconds is not None else ""
    rate = f", {numbers.rate:.2%} by themselves" if numbers.rate is not None else ""
    share = f"{numbers.recovered} of {numbers.recoveries} in the last day{p99}{rate}"
    yield "recovered", share if numbers.recoveries else "none in the last day"
    yield "begun again", f"{numbers.redone} in the last day, {numbers.redone_ratio:.3%} of all steps"
    verified = f"{numbers.verified} of {counted(numbers.recoveries, 'recovery', 'recoveries')}"
    yield "consistent", f"{verified} verified without a fault"


def _of_upkeep(found: Status) -> Iterator[tuple[str, str]]:
    for task in found.tasks:
        if task.name == "audit-log" and found.audit_log is not None and not task.failures:
            continue  # the same
        if task.name == "audit" and found.audit is not None and not task.failures:
            continue  # the line below says more
        done = f"succeeded {age(task.age_seconds)} ago" if task.age_seconds is not None else "not yet done"
        yield task.name, done + (f"; failed since: {task.fault}" if task.failures else "")
    if found.audit is not None:
        ended = f"ended {age(found.audit.age_seconds)} ago"
        yield "audit", f"{ended}, {counted(found.audit.faults, 'fault')}"
    for copy in found.copies:
        why = f"; last error: {copy.fault}" if copy.fault else ""
        yield "copy", f"{copy.name}: {copy.lag_seconds} s behind{why}"


def _of_audit_log(found: Status) -> Iterator[tuple[str, str]]:
    known = found.audit_log
    if known is None:
        return
    lag = f"{known.lag_seconds} s behind" if known.lag_seconds is not None else "not followed yet"
    aged = known.anchored_age_seconds
    anchored = f"{known.anchored:,} entries anchored {age(aged)} ago" if aged is not None else "not anchored"
    yield "audit log", f"{lag}; {anchored}"


def _of_notices(found: Status) -> Iterator[tuple[str, str]]:
    for channel in found.notices:
        given_up = f", {channel.failed} given up" if channel.failed else ""
        silent = f"; no notifier for {age(channel.silent_seconds)}" if channel.silent_seconds > 120 else ""
        why = f"; last error: {channel.error}" if channel.error else ""
        sent = f"{channel.sent} sent, {counted(channel.waiting, 'waits', 'wait')}{given_up}"
        yield "notices", f"{channel.channel}: {sent}{silent}{why}"


def _disk(found: Status) -> str:
    free = f", {found.free_bytes / (1 << 30):,.1f} GiB free" if found.free_bytes is not None else ""
    grows = found.growth_bytes_per_day
    growth = f", {grows / (1 << 20):+,.1f} MiB a day" if grows is not None else ""
    return f"{found.used_bytes / (1 << 20):,.1f} MiB used{growth}{free}"
