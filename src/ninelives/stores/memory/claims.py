"""Creating and claiming runs. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ninelives.core.errors import UsageError
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.rules import deaths
from ninelives.core.rules import run_rules as rules
from ninelives.stores.memory import lookups
from ninelives.stores.memory.sessions import owned
from ninelives.stores.memory.tables import Tables, Transaction
from ninelives.stores.shared import commit_rules, creation
from ninelives.stores.shared.selection import Wanted


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; see `Store.create_runs`."""

    def owner() -> str | None:
        return owned(tx, session).session.id if session is not None else None

    return creation.create(tx, Tables(tx), batch, owner)


def claim(tx: Transaction, session: str, limit: int, wanted: Wanted) -> Claims:
    """Claim due runs for a session, agents in turn; see `run_rules.chosen`."""
    owned(tx, session)
    rows, now_ms, only = tx.contents.rows, tx.now_ms, wanted.only
    family = commit_rules.family(rows, only) if only is not None else rows.runs.keys()
    waiting = [run for run in rows.runs.values() if run.id in family and wanted.fits(run)]

    def is_ours(run: RunRow) -> bool:
        return only is not None or deaths.is_suspect(run) is wanted.solo

    due = [run for run in waiting if is_ours(run) and rules.is_claimable(run, now_ms)]
    given = rules.chosen(due, wanted.quotas, limit, solo=wanted.solo)
    taken = [rules.claimed(run, session, now_ms) for run in given]
    rows.runs.update({run.id: run for run in taken})
    left = [rows.runs[run.id] for run in waiting]
    return Claims(
        tuple(taken),
        _next_due(run for run in left if is_ours(run)),
        _next_due(run for run in left if only is None and deaths.is_suspect(run)),
        halts=lookups.halts_version(tx),
    )


def _next_due(left: Iterable[RunRow]) -> int | None:
    return min((run.due_ms for run in left if run.due_ms is not None and not run.paused), default=None)
