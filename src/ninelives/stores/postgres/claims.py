"""Creating and claiming runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.document import HALTS
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Session
from ninelives.core.rules import run_rules, validation
from ninelives.stores.postgres.lookups import halts_version
from ninelives.stores.postgres.server.connection import ServerAnswer
from ninelives.stores.postgres.sessions import may_act
from ninelives.stores.postgres.tables import Tables
from ninelives.stores.postgres.transaction import Transaction, runs_in, save_runs
from ninelives.stores.shared import creation, rows
from ninelives.stores.shared.rows import decoding, texts
from ninelives.stores.shared.selection import Wanted


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; see `Store.create_runs`."""
    shared = _share(tx, session) if session is not None else None

    def owner() -> str | None:
        if session is not None and shared is not None:
            may_act(tx, session, shared.fetchall())
        return session

    return creation.create(tx, Tables(tx), batch, owner)


def _share(tx: Transaction, session: str) -> ServerAnswer:
    """Lock a session, shared with other claims but not with its end: an ended one must get no run."""
    return tx.ask("share_sessions", (texts([session]),))


def _values(wanted: Wanted, limit: int = 0, *, solo: bool = False) -> dict[str, Any]:
    """Return the values for the statements that search for due runs."""
    pairs = [(queue, agent) for agent in wanted.quotas for queue in wanted.queues]
    return {
        "queues": [queue for queue, _ in pairs],
        "agents": [agent for _, agent in pairs],
        "quotas": [min(wanted.quotas[agent], limit) for _, agent in pairs],
        "host": wanted.host,
        "solo": solo,
    }


def peek(tx: Transaction, session: str, wanted: Wanted) -> tuple[Claims, int]:
    """Return when the next wanted run falls due, and the time; claim nothing. Raises LeaseLost."""
    # Sent first and read last: with the two searches it is one round trip.
    cursor = tx.ask("read_sessions", (texts([session]),))
    halts = tx.ask("document_version", (HALTS,))
    seen = _next_due(tx, wanted)
    may_act(tx, session, cursor.fetchall())
    return replace(seen, halts=halts_version(halts)), tx.now_ms


def _next_due(tx: Transaction, wanted: Wanted) -> Claims:
    suspects, others = tx.ask("first_due", _values(wanted, solo=True)), tx.ask("first_due", _values(wanted))
    ((suspect,),), ((other,),) = suspects.fetchall(), others.fetchall()
    return Claims((), suspect if wanted.solo else other, suspect)


def _family(tx: Transaction, run: str, wanted: Wanted) -> list[RunRow]:
    """Lock the waiting ones among a run and its descendants; return those that this worker can take.

    The most urgent come first.
    """
    found = tx.all("lock_family", {"run": run}) if validation.is_text(run) else []
    fitting = [one for one in runs_in(found).values() if wanted.fits(one)]
    return sorted(fitting, key=lambda one: (-one.priority, one.due_ms or 0, one.number))


def claim(tx: Transaction, session: str, limit: int, wanted: Wanted) -> Claims:
    """Claim due runs for a session; see `Store.claim_runs`."""
    shared = _share(tx, session)
    halts = tx.ask("document_version", (HALTS,))
    if wanted.only is not None:
        seen = _family(tx, wanted.only, wanted)
        owner = may_act(tx, session, shared.fetchall())
        given = run_rules.chosen(
            [run for run in seen if run_rules.is_claimable(run, tx.now_ms)], wanted.quotas, limit
        )
        claimed = _claimed(tx, given, owner)
        taken = {run.id for run in given}
        next_due_ms = min((run.due_ms or 0 for run in seen if run.id not in taken), default=None)
        return Claims(claimed, next_due_ms, halts=halts_version(halts))
    owner = may_act(tx, session, shared.fetchall())
    limit = min(limit, 1) if wanted.solo else limit
    due = _due(tx, _values(wanted, limit, solo=wanted.solo) | {"now": tx.now_ms})
    claimed = _claimed(tx, run_rules.chosen(due, wanted.quotas, limit, solo=wanted.solo), owner)
    left = _next_due(tx, wanted)
    return Claims(claimed, left.next_due_ms, left.next_suspect_ms, halts=halts_version(halts))


def _claimed(tx: Transaction, given: Sequence[RunRow], owner: Session) -> tuple[RunRow, ...]:
    claimed = tuple(run_rules.claimed(run, owner.id, tx.now_ms) for run in given)
    save_runs(tx, claimed)
    return claimed


def _due(tx: Transaction, values: dict[str, Any]) -> list[RunRow]:
    found: list[RunRow] = []
    for row in tx.all("due_runs", values):
        with suppress(Corrupt), decoding("a run's row"):  # a damaged run must not hold up the others
            found.append(rows.run_of(row))
    return found
