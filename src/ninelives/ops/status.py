"""Is a store's fleet healthy: what is stuck, what fails, what is retried and why, what waits for people.

The facts are read from the store alone, so any process can ask, however many have died. `problems` says why
it is not healthy; without one, it is. Reads rows and logs, and one journal per kind of retried error.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.model.gauges import ItemGroup
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import capsules
from ninelives.governance.breakers import held_until, read_breakers
from ninelives.governance.budgets.account_names import waits_for
from ninelives.governance.budgets.standings import standings
from ninelives.governance.enforced import enforced_by
from ninelives.governance.halts import held_words, read_halts
from ninelives.ops import periodic
from ninelives.ops.disk_growth import growth_per_day
from ninelives.ops.metrics import listening, reports
from ninelives.ops.notify.retries import RetryGroup, common_text, grouped, kind_of
from ninelives.ops.notify.state import read_state
from ninelives.ops.recovery_numbers import recovery_numbers
from ninelives.ops.status_facts import (
    AuditLogLag,
    BudgetWait,
    CopyLag,
    DepartedRuns,
    FailedRuns,
    HaltInForce,
    LastAudit,
    Notices,
    OpenBreaker,
    OpenItems,
    RetriedError,
    Status,
    StuckRuns,
    Task,
    UnservedMetrics,
    WorkerPolicy,
)
from ninelives.ops.status_problems import problems
from ninelives.stores import url as urls
from ninelives.views import documents, sessions
from ninelives.views.sessions import SessionLife

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

STUCK_SECONDS = 60
"""A run that is due and that no worker takes for so long is stuck."""

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_PAGE, _MOST = 1_000, 20_000
_MOST_GROUPS = 20
_UNFINISHED = tuple(state for state in State if not state.is_final)


def status(store: AnyStore, url: str) -> Status:
    """Read the state of a store's fleet, and judge it. Raises StoreError."""
    now_ms = store.now_ms()
    rows = list(_rows(store, RunQuery(states=_UNFINISHED, limit=_PAGE)))
    seen = sessions.seen(store)
    living = [one for one in seen.values() if one.state is SessionLife.ALIVE]
    loaded = {agent for one in living for agent in one.agents}
    gauges = store.gauges()
    used = sum(gauges.used.values())
    lately = RunQuery(states=(State.FAILED,), changed_since_ms=now_ms - _DAY_MS, limit=_PAGE)
    failed = _failed(_rows(store, lately), now_ms)
    retrying = grouped(rows)
    counts: dict[State, int] = defaultdict(int)
    for row in rows:
        counts[row.state] += 1
    found = Status(
        healthy=True,
        problems=[],
        store=store.url,
        at=moment(now_ms),
        runs={state: counts[state] for state in _UNFINISHED},
        is_partial=len(rows) >= _MOST,
        paused=sum(row.paused for row in rows),
        stuck=_stuck(store, rows, {one.id for one in living}, loaded, now_ms),
        departed=_departed(rows),
        retried=_retried(store, retrying[:_MOST_GROUPS]),
        retried_runs=sum(len(one.runs) for one in retrying),
        failed=failed[:_MOST_GROUPS],
        failed_hour=sum(one.hour for one in failed),
        failed_day=sum(one.day for one in failed),
        waits=_waits(gauges.items),
        halts=_halts(store, rows, now_ms),
        breakers=_breakers(store, rows),
        budgets=_budgets(store, rows, now_ms),
        workers=sum(bool(one.agents) for one in living),
        agents=sorted(loaded),
        policies=_policies(store),
        recovery=recovery_numbers(store, now_ms, gauges.left),
        tasks=_tasks(store, now_ms),
        audit=_audit(store, now_ms),
        copies=_copies(store, now_ms),
        unserved=_unserved(store, now_ms),
        notices=_notices(store, now_ms),
        audit_log=_audit_log(store, now_ms),
        used_bytes=used,
        free_bytes=_free(url),
        growth_bytes_per_day=growth_per_day(store, now_ms, used),
    )
    why = list(problems(found))
    return replace(found, healthy=not why, problems=why)


def _rows(store: AnyStore, query: RunQuery) -> Iterator[RunRow]:
    """Return the runs that fit, newest first, up to a bound."""
    for _ in range(_MOST // _PAGE):
        page = store.list_runs(query)
        yield from page
        if len(page) < _PAGE:
            return
        query = replace(query, after=page[-1].number)


def _stuck(
    store: AnyStore, rows: Iterable[RunRow], living: Container[str], loaded: set[str], now_ms: int
) -> list[StuckRuns]:
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    renewed: dict[str, int] = {}
    for row in rows:
        if row.state is State.RUNNING and row.session is not None and row.session not in living:
            # Its worker is gone, and no process is there to end its session and take the run.
            if row.session not in renewed:
                session = store.read_session(row.session)
                renewed[row.session] = session.renewed_ms if session is not None else row.changed_ms
            since_ms = renewed[row.session]
        elif row.state in (State.PENDING, State.CHECKPOINTED) and not row.paused and row.due_ms is not None:
            since_ms = max(row.due_ms, row.changed_ms)  # due 0 means: at once, from the last change on
        else:
            continue
        if now_ms - since_ms > STUCK_SECONDS * 1000:
            groups[row.agent].append((since_ms, row.id))
    return [
        StuckRuns(
            agent=agent,
            runs=len(found),
            oldest=min(found)[1],
            since=moment(min(found)[0]),
            has_code=agent in loaded,
        )
        for agent, found in sorted(groups.items())
    ]


def _departed(rows: Iterable[RunRow]) -> list[DepartedRuns]:
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        if (to := capsules.target_of(row)) is not None:
            groups[to].append((row.changed_ms, row.id))
    return [
        DepartedRuns(to=to, runs=len(found), oldest=min(found)[1], since=moment(min(found)[0]))
        for to, found in sorted(groups.items())
    ]


def _retried(store: AnyStore, groups: Iterable[RetryGroup]) -> list[RetriedError]:
    return [
        RetriedError(
            agent=one.agent,
            step=one.step,
            error=one.said,
            runs=len(one.runs),
            since=moment(one.since_ms(store)),
            next_attempt=moment(min(known.due_ms for known, _ in one.runs)),
            most_attempts=max(known.attempt for known, _ in one.runs),
            of=one.runs[0][0].of,
            example=one.runs[0][1].id,
        )
        for one in groups
    ]


def _failed(rows: Iterable[RunRow], now_ms: int) -> list[FailedRuns]:
    groups: dict[tuple[str, str], list[RunRow]] = defaultdict(list)
    for row in rows:
        groups[row.agent, kind_of(row.last_error)].append(row)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [
        FailedRuns(
            agent=agent,
            error=common_text(row.last_error for row in found),
            hour=sum(row.changed_ms >= now_ms - _HOUR_MS for row in found),
            day=len(found),
            last=moment(max(row.changed_ms for row in found)),
            example=found[0].id,
        )
        for (agent, _), found in largest
    ]


def _waits(groups: Iterable[ItemGroup]) -> list[OpenItems]:
    found: dict[tuple[str, ItemKind], list[ItemGroup]] = defaultdict(list)
    for group in groups:
        found[group.agent, group.kind].append(group)
    return [
        OpenItems(
            agent=agent,
            kind=kind,
            items=sum(one.items for one in same),
            oldest=moment(min(one.opened_ms for one in same)),
        )
        for (agent, kind), same in sorted(found.items())
    ]


def _held(rows: Iterable[RunRow], words: str) -> int:
    """Count the runs that wait for what these words name."""
    return sum(row.state is State.CHECKPOINTED and words in row.waits for row in rows)


def _halts(store: AnyStore, rows: Iterable[RunRow], now_ms: int) -> list[HaltInForce]:
    return [
        HaltInForce(
            id=one.id,
            what=one.what,
            reason=one.reason,
            by=one.by,
            since=moment(one.at_ms),
            until=moment(one.until_ms) if one.until_ms is not None else None,
            is_trip=one.is_trip,
            runs=_held(rows, held_words(one)),
        )
        for one in read_halts(store, now_ms)
    ]


def _breakers(store: AnyStore, rows: Iterable[RunRow]) -> list[OpenBreaker]:
    return [
        OpenBreaker(
            step=name,
            opened=one.opened,
            next_attempt=moment(one.until_ms),
            error=one.error,
            runs=_held(rows, held_until(name)),
        )
        for name, one in read_breakers(store).items()
    ]


def _budgets(store: AnyStore, rows: Iterable[RunRow], now_ms: int) -> list[BudgetWait]:
    # A store that has many accounts has few that runs wait for: so the texts are grouped first.
    held = Counter(row.waits for row in rows if row.state is State.CHECKPOINTED and "budget" in row.waits)
    if not held:
        return []
    found = []
    for one in standings(store, now_ms):
        words = waits_for(one.budget, one.whose)
        runs = sum(count for waits, count in held.items() if waits.endswith(words))
        if runs and one.ends_ms is not None:
            until = moment(one.ends_ms)
            found.append(
                BudgetWait(budget=one.budget, value=one.value, whose=one.whose, runs=runs, until=until)
            )
    return found


def _policies(store: AnyStore) -> list[WorkerPolicy]:
    return [
        WorkerPolicy(
            name=one.policy.name,
            digest=one.policy.digest,
            workers=one.workers,
            agents=sorted(one.agents),
            example=one.example,
            since=moment(one.since_ms),
        )
        for one in enforced_by(store, store.list_sessions())
    ]


def _tasks(store: AnyStore, now_ms: int) -> list[Task]:
    found = []
    for document in documents.listing(store, periodic.PREFIX):
        with suppress(msgspec.DecodeError):
            known = msgspec.json.decode(document.body, type=periodic.Schedule)
            done_ms = known.succeeded_ms
            found.append(
                Task(
                    name=document.name.removeprefix(periodic.PREFIX),
                    succeeded=moment(done_ms) if done_ms else None,
                    age_seconds=(now_ms - done_ms) // 1000 if done_ms else None,
                    failures=known.failures,
                    fault=known.fault,
                )
            )
    return found


def _audit(store: AnyStore, now_ms: int) -> LastAudit | None:
    known, _ = documents.read(store, reports.AUDIT, reports.AuditReport)
    if known is None:
        return None
    aged = (now_ms - known.finished_ms) // 1000
    return LastAudit(finished=moment(known.finished_ms), age_seconds=aged, faults=known.faults)


def _copies(store: AnyStore, now_ms: int) -> list[CopyLag]:
    found = []
    for document in documents.listing(store, reports.COPIES):
        with suppress(msgspec.DecodeError):
            known = msgspec.json.decode(document.body, type=reports.ReplicationReport)
            # A replicator that died writes no more: its lag grows with the time since its last report.
            lag = known.lag_seconds + max(0, now_ms - known.written_ms) / 1000
            name = document.name.removeprefix(reports.COPIES)
            found.append(
                CopyLag(name=name, lag_seconds=int(lag), fault=known.fault, is_refused=known.is_refused)
            )
    return found


def _unserved(store: AnyStore, now_ms: int) -> list[UnservedMetrics]:
    found = listening.read_all(store, now_ms)
    return [UnservedMetrics(host=one.host.partition("~")[0], fault=one.fault) for one in found]


def _notices(store: AnyStore, now_ms: int) -> list[Notices]:
    known = read_state(store)
    if known is None:
        return []
    return [
        Notices(
            channel=name,
            sent=one.sent,
            failed=one.failed,
            waiting=one.waiting,
            oldest_seconds=max(0, now_ms - one.oldest_waiting_ms) // 1000 if one.oldest_waiting_ms else 0,
            error=one.error,
            silent_seconds=max(0, now_ms - known.at_ms) // 1000,
        )
        for name, one in sorted(known.channels.items())
    ]


def _audit_log(store: AnyStore, now_ms: int) -> AuditLogLag | None:
    from ninelives.governance.audit_log.anchoring.anchors import read_anchored

    known, _ = documents.read(store, reports.AUDIT_LOG_STATE, reports.LogSwitch)
    if known is None or not known.is_on:
        return None
    followed, _ = documents.read(store, reports.AUDIT_LOG_FOLLOWER, reports.FollowerReport)
    through_ms = followed.through_ms if followed is not None else 0
    last = max(read_anchored(store).values(), key=lambda one: one.at_ms, default=None)
    return AuditLogLag(
        lag_seconds=max(0, now_ms - through_ms) // 1000 if through_ms else None,
        anchored=last.size if last is not None else 0,
        anchored_age_seconds=max(0, now_ms - last.at_ms) // 1000 if last is not None else None,
    )


def _free(url: str) -> int | None:
    """Return the free bytes on the disk of a local store; None for a server."""
    path = urls.path_of(url)
    if path is None:
        return None
    with suppress(OSError):
        return shutil.disk_usage(Path(path).parent).free
    return None
