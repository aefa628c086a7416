"""What `status` says of a fleet: the facts, as data. Field names are stable: programs read them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.ops.recovery_numbers import RecoveryNumbers


class Problem(Struct, frozen=True):
    """Why it is not healthy: a stable name for programs, and a sentence for people."""

    kind: str
    text: str


class StuckRuns(Struct, frozen=True, kw_only=True):
    """Runs of an agent that are due, or whose worker is gone, and that no worker takes.

    `has_code`: a live worker could.
    """

    agent: str
    runs: int
    oldest: str
    since: datetime
    has_code: bool


class DepartedRuns(Struct, frozen=True, kw_only=True):
    """Runs on their way to another store: they may run nowhere until their move has ended."""

    to: str
    runs: int
    oldest: str
    since: datetime


class RetriedError(Struct, frozen=True, kw_only=True):
    """Runs that retry a step of an agent for the same kind of error; `error` is what the errors say."""

    agent: str
    step: str
    error: str
    runs: int
    since: datetime
    next_attempt: datetime
    most_attempts: int
    of: int
    example: str


class FailedRuns(Struct, frozen=True, kw_only=True):
    """Runs of an agent that failed in the last day with the same kind of error."""

    agent: str
    error: str
    hour: int
    day: int
    last: datetime
    example: str


class OpenItems(Struct, frozen=True, kw_only=True):
    """Open inbox items of an agent and kind."""

    agent: str
    kind: ItemKind
    items: int
    oldest: datetime


class Task(Struct, frozen=True, kw_only=True):
    """Periodic work (`audit`, …): when it last succeeded, and what the last failure was."""

    name: str
    succeeded: datetime | None
    age_seconds: int | None
    failures: int
    fault: str


class LastAudit(Struct, frozen=True, kw_only=True):
    """The last audit that came to its end."""

    finished: datetime
    age_seconds: int
    faults: int


class CopyLag(Struct, frozen=True, kw_only=True):
    """A copy of the store elsewhere, and the age of the oldest commit that may not be there yet.

    `fault` is what the replicator last failed at; with `is_refused`, it copies nothing.
    """

    name: str
    lag_seconds: int
    fault: str
    is_refused: bool


class UnservedMetrics(Struct, frozen=True, kw_only=True):
    """A machine on which `up` cannot serve metrics, and why."""

    host: str
    fault: str


class Notices(Struct, frozen=True, kw_only=True):
    """Notices to people over one channel: how many wait, the age of the oldest event, and the last error.

    `failed` are those that were given up. `silent_seconds` is how long no notifier has written that it runs.
    """

    channel: str
    sent: int
    failed: int
    waiting: int
    oldest_seconds: int
    error: str
    silent_seconds: int


class HaltInForce(Struct, frozen=True, kw_only=True):
    """A halt: what it holds, its reason, its author, its times. `is_trip`: no person declared it.

    `runs` wait for its end now.
    """

    id: str
    what: str
    reason: str
    by: str
    since: datetime
    until: datetime | None
    is_trip: bool
    runs: int


class OpenBreaker(Struct, frozen=True, kw_only=True):
    """A breaker that is not closed: of which step, how often it has opened, and its last error.

    `runs` wait until it closes.
    """

    step: str
    opened: int
    next_attempt: datetime
    error: str
    runs: int


class BudgetWait(Struct, frozen=True, kw_only=True):
    """Runs that wait until the window of an account of a budget turns. `value` is the account's owner."""

    budget: str
    value: str
    whose: str
    runs: int
    until: datetime


class WorkerPolicy(Struct, frozen=True, kw_only=True):
    """The live workers that judge calls by one policy; without a name and a digest: by none.

    `since` is when the first of them, the session `example`, was started.
    """

    name: str
    digest: str
    workers: int
    agents: list[str]
    example: str
    since: datetime


class AuditLogLag(Struct, frozen=True, kw_only=True):
    """How far the audit log is behind the journals, and what of it was last anchored, and when.

    `lag_seconds` is None until the journals were followed for the first time.
    """

    lag_seconds: int | None
    anchored: int
    anchored_age_seconds: int | None


class Status(Struct, frozen=True, kw_only=True):
    """Everything that `ninelives status` says. Field names are stable: programs read them.

    `retried` and `failed` are the largest groups; `retried_runs`, `failed_hour` and `failed_day` count all.
    """

    healthy: bool
    problems: list[Problem]
    store: str
    at: datetime
    runs: dict[State, int]
    is_partial: bool
    paused: int
    stuck: list[StuckRuns]
    departed: list[DepartedRuns]
    retried: list[RetriedError]
    retried_runs: int
    failed: list[FailedRuns]
    failed_hour: int
    failed_day: int
    waits: list[OpenItems]
    halts: list[HaltInForce]
    breakers: list[OpenBreaker]
    budgets: list[BudgetWait]
    workers: int
    agents: list[str]
    policies: list[WorkerPolicy]
    recovery: RecoveryNumbers
    tasks: list[Task]
    audit: LastAudit | None
    copies: list[CopyLag]
    unserved: list[UnservedMetrics]
    notices: list[Notices]
    audit_log: AuditLogLag | None
    used_bytes: int
    free_bytes: int | None
    growth_bytes_per_day: int | None
