"""Creating and claiming runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Session
from ninelives.core.rules import run_rules, validation
from ninelives.stores.postgres.server.connection import ServerAnswer
from ninelives.stores.postgres.sessions import may_act
from ninelives.stores.postgres.transaction import Transaction, append_all, decoding, runs_in, save_runs, texts
from ninelives.stores.shared import rows
from ninelives.stores.shared.creation import NewRuns


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; for an id that exists, answer with that run; see `Store.create_runs`."""
    wanted = NewRuns(batch)
    shared = _share(tx, session) if session is not None else None
    # Parents stay locked: a parent that ended meanwhile would not cancel a child that it cannot see yet.
    known = runs_in(tx.all("lock_runs", (wanted.names,)))
    blobs = {digest for (digest,) in tx.all("known_blobs", (wanted.blobs,))} if wanted.blobs else set()
    if session is not None and shared is not None:
        may_act(tx, session, shared.fetchall())
    known |= _insert(tx, wanted.fresh(known, blobs), session)
    return wanted.answers(known)


def _share(tx: Transaction, session: str) -> ServerAnswer:
    """Lock a session, shared with other claims but not with its end: an ended one must get no run."""
    return tx.ask("share_sessions", (texts([session]),))


def _insert(tx: Transaction, fresh: Sequence[NewRun], session: str | None) -> dict[str, RunRow]:
    if not fresh:
        return {}
    numbers = sorted(number for (number,) in tx.all("next_run_numbers", (len(fresh),)))
    numbered = zip(numbers, fresh, strict=True)
    made = [run_rules.created(new, number, tx.now_ms, session) for number, new in numbered]
    tx.many("insert_run", [rows.row_of(run) for run, _ in made])
    append_all(tx, [(run.number, records) for run, records in made])
    tx.wakes = any(run.session is None for run, _ in made)
    return {run.id: run for run, _ in made}


class Wanted:
    """What a worker can take: agents with their quotas, queues, its host."""

    def __init__(self, agents: Mapping[str, int], queues: Sequence[str], host: str | None) -> None:
        self.quotas = {name: agents[name] for name in texts(list(agents)) if agents[name] > 0}
        self.queues = texts(list(dict.fromkeys(queues)))
        self.host = host if host is None or validation.is_text(host) else None

    def values(self, limit: int = 0, *, alone: bool = False) -> dict[str, Any]:
        """Return the values for the statements that search for due runs."""
        pairs = [(queue, agent) for agent in self.quotas for queue in self.queues]
        return {
            "queues": [queue for queue, _ in pairs],
            "agents": [agent for _, agent in pairs],
            "quotas": [min(self.quotas[agent], limit) for _, agent in pairs],
            "host": self.host,
            "alone": alone,
        }

    def fits(self, run: RunRow) -> bool:
        """Return whether an unowned run could be claimed by this worker."""
        return run.agent in self.quotas and run.queue in self.queues and run.pin in (None, self.host)


def peek(tx: Transaction, wanted: Wanted, *, alone: bool) -> Claims:
    """Return when the next wanted run falls due, and claim nothing."""
    suspects, others = tx.ask("first_due", wanted.values(alone=True)), tx.ask("first_due", wanted.values())
    ((suspect,),), ((other,),) = suspects.fetchall(), others.fetchall()
    return Claims((), suspect if alone else other, suspect)


def _family(tx: Transaction, run: str, wanted: Wanted) -> list[RunRow]:
    """Lock the waiting ones among a run and its descendants; return those that this worker can take.

    The most urgent come first.
    """
    found = tx.all("lock_family", {"run": run}) if validation.is_text(run) else []
    fitting = [one for one in runs_in(found).values() if wanted.fits(one)]
    return sorted(fitting, key=lambda one: (-one.priority, one.due_ms or 0, one.number))


def claim(
    tx: Transaction, session: str, limit: int, wanted: Wanted, only: str | None, *, alone: bool
) -> Claims:
    """Claim due runs for a session; see `Store.claim_runs`."""
    shared = _share(tx, session)
    if only is not None:
        seen = _family(tx, only, wanted)
        owner = may_act(tx, session, shared.fetchall())
        given = run_rules.chosen(
            [run for run in seen if run_rules.is_claimable(run, tx.now_ms)], wanted.quotas, limit
        )
        claimed = _claimed(tx, given, owner)
        taken = {run.id for run in given}
        return Claims(claimed, min((run.due_ms or 0 for run in seen if run.id not in taken), default=None))
    owner = may_act(tx, session, shared.fetchall())
    limit = min(limit, 1) if alone else limit
    due = _due(tx, wanted.values(limit, alone=alone) | {"now": tx.now_ms})
    claimed = _claimed(tx, run_rules.chosen(due, wanted.quotas, limit, alone=alone), owner)
    left = peek(tx, wanted, alone=alone)
    return Claims(claimed, left.next_due_ms, left.next_suspect_ms)


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
