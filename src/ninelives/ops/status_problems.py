"""Why a fleet is not healthy: one sentence for each reason."""

from __future__ import annotations

from collections.abc import Iterator

from ninelives.core.model.inbox import ItemKind
from ninelives.governance.breakers import UNUSED_MS
from ninelives.ops.recovery_numbers import RecoveryNumbers
from ninelives.ops.status_facts import Problem, RetriedError, Status, WorkerPolicy
from ninelives.views.counted import counted

UNRECOVERED_SECONDS = 30
OUTAGE_RUNS, OUTAGE_SECONDS = 5, 600
"""So many runs that retry for the same error are an outage; so is any that has retried for so long."""
DEPARTED_SECONDS = 60
"""So long no move takes from departure to arrival: its process has died, or the other store is away."""
HALT_SECONDS = 86_400
"""A halt that a person declared without an end, and that stands for so long, may be forgotten."""
BUDGET_SECONDS = 600
"""Runs that wait longer than this for a budget's window are a problem; a minute's rate is none."""
ROLLOUT_SECONDS = 300
"""So long workers of an agent may enforce different policies: a new one is being rolled out."""
AUDIT_SECONDS, LAG_SECONDS = 2 * 86_400, 60
AUDIT_LOG_SECONDS = 300
NOTICE_SECONDS = SILENT_SECONDS = 600
"""A notice of something older is stuck; a notifier that has written nothing for so long does not run."""
LITTLE_BYTES = 1 << 30
_HARMLESS = (ItemKind.APPROVAL, ItemKind.QUESTION)


def problems(found: Status) -> Iterator[Problem]:
    """Return each reason why a fleet is not healthy."""
    yield from _of_runs(found)
    yield from _of_halts(found)
    yield from _of_policies(found)
    yield from _of_recovery(found.recovery)
    yield from _of_upkeep(found)


def _of_runs(found: Status) -> Iterator[Problem]:
    now = found.at.timestamp()
    for one in found.retried:
        took = now - one.since.timestamp()
        if one.runs >= OUTAGE_RUNS or took > OUTAGE_SECONDS:
            runs = counted(one.runs, f"run of {one.agent} retries", f"runs of {one.agent} retry")
            yield Problem(
                "retried",
                f"{runs} {one.step} since {one.since:%H:%M:%S}Z, "
                f"the next attempt is {_when(one, found)}: {one.error}",
            )
    more = found.retried_runs - sum(one.runs for one in found.retried)
    if more >= OUTAGE_RUNS:
        others = counted(more, "more run retries", "more runs retry")
        yield Problem("retried", f"{others}, at other steps or for other errors")
    for failure in found.failed:
        if failure.hour:
            yield Problem(
                "failed",
                f"{counted(failure.hour, 'run')} of {failure.agent} failed in the last hour: {failure.error}",
            )
    for stuck in found.stuck:
        missing = "no worker has its code loaded" if found.workers else "no worker runs"
        why = "no worker takes them" if stuck.has_code else missing
        yield Problem(
            "stuck",
            f"{counted(stuck.runs, 'run')} of {stuck.agent}, due since {stuck.since:%H:%M:%S}Z: {why}",
        )
    for gone in found.departed:
        if now - gone.since.timestamp() > DEPARTED_SECONDS:
            runs = counted(gone.runs, "run is on its way", "runs are on their way")
            yield Problem(
                "moving",
                f"{runs} to {gone.to} since {gone.since:%H:%M:%S}Z, "
                f"such as {gone.oldest}, and may run nowhere: repeat the ninelives move, which finishes it, "
                "or call it back with --back",
            )
    for waits in found.waits:
        if waits.kind not in _HARMLESS:
            yield Problem(
                waits.kind.value,
                f"{counted(waits.items, 'run')} of {waits.agent} stopped until a person decides "
                f"({waits.kind}); see: ninelives inbox",
            )


def _when(one: RetriedError, found: Status) -> str:
    if one.next_attempt > found.at:
        return f"at {one.next_attempt:%H:%M:%S}Z"
    if one.agent in found.agents:
        return "due"
    return "due, and no worker has its code loaded" if found.workers else "due, and no worker runs"


def _of_halts(found: Status) -> Iterator[Problem]:
    """Yield what stands without a person's decision. A halt that a person declared is no fault for a day."""
    now = found.at.timestamp()
    for halt in found.halts:
        waiting = f" ({counted(halt.runs, 'run waits', 'runs wait')})" if halt.runs else ""
        again = f"see: ninelives halts; to let it go on: ninelives unhalt {halt.id}"
        if halt.is_trip:
            yield Problem("halted", f"{halt.what}{waiting} was halted: {halt.reason}; {again}")
        elif halt.until is None and now - halt.since.timestamp() > HALT_SECONDS:
            hours = counted(int(now - halt.since.timestamp()) // 3600, "hour")
            yield Problem(
                "halted",
                f"{halt.what}{waiting} has been halted for {hours}, by {halt.by}: {halt.reason}; {again}",
            )
    for breaker in found.breakers:
        if not breaker.runs and (now - breaker.next_attempt.timestamp()) * 1000 > UNUSED_MS:
            continue  # nothing calls it any more
        following = f"{breaker.next_attempt:%H:%M:%S}Z"
        held = f" ({counted(breaker.runs, 'run')})" if breaker.runs else ""
        what = f"calls of {breaker.step} wait{held}, the next attempt is at {following}: {breaker.error}"
        yield Problem("breaker", what)
    for one in found.budgets:
        if one.until.timestamp() - now > BUDGET_SECONDS:
            runs = counted(one.runs, "run waits", "runs wait")
            account = f"{one.budget} {one.value}".rstrip()
            yield Problem(
                "spent",
                f"{runs} until {one.until:%Y-%m-%d %H:%M}Z for budget {one.budget!r} {one.whose}: it is used "
                f"up; to let them go on: ninelives budget raise {account} (ninelives budget show)",
            )


def _of_policies(found: Status) -> Iterator[Problem]:
    """Yield agents whose calls are judged by one worker in another way than by the next."""
    now = found.at.timestamp()
    by_agent: dict[str, list[WorkerPolicy]] = {}
    for policy in found.policies:
        for agent in policy.agents:
            by_agent.setdefault(agent, []).append(policy)
    for agent, different in sorted(by_agent.items()):
        since = max(one.since.timestamp() for one in different)
        if len(different) > 1 and now - since > ROLLOUT_SECONDS:
            each = ", ".join(
                f"{policy_text(one)} ({counted(one.workers, 'worker')}, such as {one.example})"
                for one in different
            )
            yield Problem(
                "policies",
                f"workers judge the calls of {agent} by different policies: {each}; "
                "restart those that have the wrong one",
            )


def policy_text(one: WorkerPolicy) -> str:
    """Return a policy in words."""
    return f"{one.name} {one.digest[:12]}" if one.digest else "no policy"


def _of_upkeep(found: Status) -> Iterator[Problem]:
    for task in found.tasks:
        if task.failures:
            yield Problem("task", f"{task.name} has failed {counted(task.failures, 'time')}: {task.fault}")
    if found.audit is not None and found.audit.faults:
        yield Problem(
            "audit",
            f"the last audit found {counted(found.audit.faults, 'fault')}; see: ninelives store audit",
        )
    if found.audit is not None and found.audit.age_seconds > AUDIT_SECONDS:
        yield Problem("audit", f"the last audit ended {counted(found.audit.age_seconds // 3600, 'hour')} ago")
    yield from _of_reports(found)
    if found.audit_log is not None:
        lag = found.audit_log.lag_seconds
        if lag is None or lag > AUDIT_LOG_SECONDS:
            since = f"for {counted(lag // 60, 'minute')}" if lag is not None else "yet"
            yield Problem(
                "audit log",
                f"the audit log has not followed the journals {since}: no `up` and no "
                "`ninelives audit follow` does it",
            )
    if found.free_bytes is not None and found.free_bytes < LITTLE_BYTES:
        yield Problem("disk", f"only {found.free_bytes / (1 << 20):,.0f} MiB are free on the store's disk")


def _of_reports(found: Status) -> Iterator[Problem]:
    """Yield what replicators, exporters and notifiers report."""
    for copy in found.copies:
        if copy.is_refused:
            yield Problem("replication", f"nothing is copied to the copy {copy.name}: {copy.fault}")
        elif copy.lag_seconds > LAG_SECONDS:
            why = f": {copy.fault}" if copy.fault else ""
            yield Problem("replication", f"the copy {copy.name} is {copy.lag_seconds} s behind{why}")
    for machine in found.unserved:
        yield Problem("metrics", f"{machine.host} serves no metrics: {machine.fault}")
    for one in found.notices:
        if one.oldest_seconds > NOTICE_SECONDS:
            is_silent = one.silent_seconds > SILENT_SECONDS
            why = "no notifier runs; see: ninelives notify" if is_silent else one.error
            name = one.channel
            waiting = counted(one.waiting, f"notice to {name} is", f"notices to {name} are")
            yield Problem(
                "notices",
                f"{waiting} not delivered, "
                f"the oldest for {counted(one.oldest_seconds // 60, 'minute')}" + (f": {why}" if why else ""),
            )


def _of_recovery(numbers: RecoveryNumbers) -> Iterator[Problem]:
    if numbers.unrecovered_seconds > UNRECOVERED_SECONDS:
        yield Problem(
            "unrecovered",
            f"{counted(numbers.unrecovered, 'run')} not recovered, {numbers.unrecovered_seconds} s after "
            "the death of their worker",
        )
    if numbers.slow_last_hour:
        yield Problem(
            "recovery",
            f"{counted(numbers.slow_last_hour, 'recovery', 'recoveries')} of the last hour took over 30 s",
        )
    if numbers.faults:
        yield Problem(
            "inconsistent",
            f"{counted(numbers.faults, 'recovery', 'recoveries')} of the last day found faults; "
            "see: ninelives recoveries",
        )
    if numbers.lost:
        yield Problem("lost", f"{counted(numbers.lost, 'run')} of the last day could not be recovered")
