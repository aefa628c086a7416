"""Runs in the tables: creating and claiming them. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ninelives.core.errors import UsageError
from ninelives.core.model.run import Claims, NewRun, RunQuery, RunRow
from ninelives.core.rules import deaths, validation
from ninelives.core.rules import run_rules as rules
from ninelives.stores.shared import commit_rules
from ninelives.stores.shared.tables import Tables


def create(tables: Tables, new: NewRun, now_ms: int, session: str | None) -> tuple[RunRow | UsageError, bool]:
    """Create a run, or return why not; also return whether a new run is waiting to be claimed."""
    fault = validation.fault_in_new(new)
    if fault is not None:
        return fault, False
    known = tables.rows.runs.get(new.id)
    if known is not None:
        return rules.same_or_conflict(known, new), False
    refused = rules.refuses_children(tables.rows.runs.get(new.parent or ""), new.id)
    if refused is not None:
        return refused, False
    for digest in rules.blobs_of(new):
        if digest not in tables.blobs:
            lost = validation.lost_blob(new.id, digest)
            return UsageError(lost.what, run=new.id, remedy=lost.remedy), False
    tables.last_number += 1
    new = replace(new, labels=dict(new.labels))
    run, records = rules.created(new, tables.last_number, now_ms, session)
    tables.rows.runs[run.id] = run
    tables.rows.refers[run.id] = frozenset(rules.blobs_of(new))
    tables.journals[run.id] = list(records)
    if run.parent is not None:
        tables.rows.children[run.parent] = (*tables.rows.children.get(run.parent, ()), run.id)
    return run, run.session is None


def claim(
    tables: Tables,
    session: str,
    limit: int,
    agents: Mapping[str, int],
    now_ms: int,
    *,
    queues: Sequence[str],
    host: str | None,
    only: str | None,
    alone: bool,
) -> Claims:
    """Claim due runs for a session, agents in turn; see `run_rules.chosen`."""
    rows = tables.rows
    family, alone = commit_rules.family(rows, only) if only is not None else None, alone and only is None
    waiting: list[RunRow] = []

    def is_eligible(run: RunRow) -> bool:
        is_ours = only is not None or deaths.is_suspect(run) is alone
        return is_ours and rules.is_claimable(run, now_ms)

    for run in rows.runs.values():
        if family is not None and run.id not in family:
            continue
        if agents.get(run.agent, 0) > 0 and run.queue in queues and run.pin in (None, host):
            waiting.append(run)
    due = [run for run in waiting if is_eligible(run)]
    taken = [rules.claimed(run, session, now_ms) for run in rules.chosen(due, agents, limit, alone=alone)]
    rows.runs.update({run.id: run for run in taken})
    left = [rows.runs[run.id] for run in waiting]
    return Claims(
        tuple(taken),
        _next_due(run for run in left if only is not None or deaths.is_suspect(run) is alone),
        _next_due(run for run in left if only is None and deaths.is_suspect(run)),
    )


def fits(run: RunRow, query: RunQuery) -> bool:
    """Return whether a run matches a query."""
    return (
        (not query.states or run.state in query.states)
        and query.agent in (None, run.agent)
        and (query.session is None or run.session == query.session)
        and (query.parent is None or run.parent == query.parent)
        and (query.after is None or run.number < query.after)
        and query.labels.items() <= run.labels.items()
    )


def _next_due(left: Iterable[RunRow]) -> int | None:
    return min((run.due_ms for run in left if run.due_ms is not None and not run.paused), default=None)
