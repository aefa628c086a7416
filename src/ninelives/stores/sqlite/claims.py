"""Creating and claiming runs, and releasing those of a session that ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, UsageError
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Cause, Evidence, Session
from ninelives.core.rules import deaths, run_rules, validation
from ninelives.stores.shared import rows
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.recovery_log import append as append_log
from ninelives.stores.sqlite.transaction import (
    Transaction,
    append_all,
    changes_of,
    decoding,
    find_run,
    find_runs,
    lost_blob,
    save_labels,
    save_run,
)

_ABOVE_ALL = 2**62
Waiting = frozenset[tuple[str, str, bool]]
"""Queue, agent and whether solo (suspects are claimed solo), for which at least one run is unclaimed."""


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; for an id that exists, answer with that run; see `Store.create_runs`."""
    faulty = [validation.fault_in_new(new) for new in batch]
    known = find_runs(tx, [new.id for new, fault in zip(batch, faulty, strict=True) if fault is None])
    fresh: dict[str, NewRun] = {}
    refused: dict[int, UsageError] = {}
    for position, (new, fault) in enumerate(zip(batch, faulty, strict=True)):
        error = fault or (_fault_beside(tx, new) if new.id not in known and new.id not in fresh else None)
        if error is not None:
            refused[position] = error
        elif new.id not in known:
            fresh.setdefault(new.id, new)
    known |= _insert(tx, list(fresh.values()), session)
    return [
        refused[position]
        if position in refused
        else _answer(known[new.id], new, is_new=fresh.get(new.id) is new)
        for position, new in enumerate(batch)
    ]


def _answer(run: RunRow, new: NewRun, *, is_new: bool) -> RunRow | UsageError:
    return run if is_new else run_rules.same_or_conflict(run, new)


def _fault_beside(tx: Transaction, new: NewRun) -> UsageError | None:
    """Return the conflict of a new run with its parent's state or with a missing blob, if there is one."""
    refused = run_rules.refuses_children(find_run(tx, new.parent), new.id) if new.parent is not None else None
    if refused is not None:
        return refused
    lost = lost_blob(tx, run_rules.blobs_of(new), new.id)
    return UsageError(lost.what, run=new.id, remedy=lost.remedy) if lost is not None else None


def _insert(tx: Transaction, fresh: Sequence[NewRun], session: str | None) -> dict[str, RunRow]:
    if not fresh:
        return {}
    first: int = tx.all("next_run_numbers", (len(fresh),))[0][0]
    made = [run_rules.created(new, number, tx.now_ms, session) for number, new in enumerate(fresh, first)]
    tx.write("insert_run", [checks.sealed_run(run) for run, _ in made])
    for run, _ in made:
        if run.labels:
            save_labels(tx, run)
    append_all(tx, [(run.number, records) for run, records in made])
    tx.wakes = any(run.session is None for run, _ in made)
    return {run.id: run for run, _ in made}


def claim(
    tx: Transaction,
    session: Session,
    limit: int,
    agents: Mapping[str, int],
    queues: Sequence[str],
    host: str | None,
    damaged: str,
    alone: bool,
) -> Claims:
    """Claim due runs for a session; see `Store.claim_runs`. Skips the numbers in `damaged`, a JSON list."""
    limit = min(limit, 1) if alone else limit
    wanted = [agent for agent, quota in agents.items() if quota > 0]
    # Read once: the claims below can only empty queues, and `next_due` copes with an empty one.
    waiting = waiting_agents(tx, wanted, queues)
    due = [
        run
        for agent in wanted
        for queue in queues
        if (queue, agent, alone) in waiting
        for run in _due(tx, agent, min(agents[agent], limit), queue, host, damaged, alone)
    ]
    given = run_rules.chosen(due, agents, limit, alone=alone)
    claimed = tuple(run_rules.claimed(run, session.id, tx.now_ms) for run in given)
    tx.write("update_run", [changes_of(run) for run in claimed])
    suspects = next_due(tx, waiting, host, alone=True)
    others = suspects if alone else next_due(tx, waiting, host, alone=False)
    return Claims(claimed, others, suspects)


def waiting_agents(tx: Transaction, agents: Sequence[str], queues: Sequence[str]) -> Waiting:
    """Return which agents have unclaimed runs, in one query: a worker knows many agents, most have none."""
    try:
        values = tuple(msgspec.json.encode(list(names)).decode() for names in (agents, queues))
    except UnicodeEncodeError:  # a name that is not valid text matches no run; do not fail the others
        return frozenset(
            (queue, agent, alone) for queue in queues for agent in agents for alone in (False, True)
        )
    return frozenset((queue, agent, bool(alone)) for queue, agent, alone in tx.all("waiting_agents", values))


def family_due(
    tx: Transaction, run_id: str, agents: Sequence[str], queues: Sequence[str], host: str | None
) -> int | None:
    """Return when the first claimable run among a run and its descendants falls due here."""
    dues = (run.due_ms for run in _family_waiting(tx, run_id, agents, queues, host))
    return min((due for due in dues if due is not None), default=None)


def claim_family(
    tx: Transaction,
    session: Session,
    run_id: str,
    limit: int,
    agents: Mapping[str, int],
    queues: Sequence[str],
    host: str | None,
) -> Claims:
    """Claim a run and its descendants for a session, as far as they are due."""
    wanted = [agent for agent, quota in agents.items() if quota > 0]
    waiting = _family_waiting(tx, run_id, wanted, queues, host)
    due = [run for run in waiting if run.due_ms is not None and run.due_ms <= tx.now_ms]
    given = run_rules.chosen(due, agents, limit)
    claimed = tuple(run_rules.claimed(run, session.id, tx.now_ms) for run in given)
    for run in claimed:
        save_run(tx, run)
    return Claims(claimed, family_due(tx, run_id, wanted, queues, host))


def _family_waiting(
    tx: Transaction, run_id: str, agents: Sequence[str], queues: Sequence[str], host: str | None
) -> list[RunRow]:
    with decoding("a run's row"):
        found = [rows.run_of(row) for row in tx.all("family_waiting", (run_id,))]
    return [run for run in found if run.agent in agents and run.queue in queues and run.pin in (None, host)]


def _due(
    tx: Transaction, agent: str, quota: int, queue: str, host: str | None, damaged: str, alone: bool
) -> list[RunRow]:
    """Return all candidates among an agent's due runs; of suspects, one of each priority."""
    found: list[RunRow] = []
    left = quota
    for priority in _priorities(tx, queue, agent, alone):
        if left <= 0:
            break
        values = (queue, agent, priority, tx.now_ms, host, left, damaged, alone)
        with decoding("a run's row"):
            batch = [rows.run_of(row) for row in tx.all("due_runs", values)]
        found += batch
        left -= 0 if alone else len(batch)
    return found


def _priorities(tx: Transaction, queue: str, agent: str, alone: bool) -> list[int]:
    found: list[int] = []
    below = _ABOVE_ALL
    while True:
        row = tx.one("next_priority", (queue, agent, alone, below))
        if row is None or row[0] is None:
            return found
        below = row[0]
        found.append(below)


def next_due(tx: Transaction, waiting: Waiting, host: str | None, *, alone: bool) -> int | None:
    """Return when the next unclaimed run falls due; with `alone`, the next suspect."""
    dues = [
        tx.all("first_due", (queue, agent, priority, host, alone))[0][0]
        for queue, agent, is_suspect in waiting
        if is_suspect is alone
        for priority in _priorities(tx, queue, agent, alone)
    ]
    return min((due for due in dues if due is not None), default=None)


def get_session(tx: Transaction, session: str, clock: Clock) -> Session:
    """Return a session that may still act.

    Raises LeaseLost when it is unknown, has ended, or its lease has run out.
    """
    row = tx.one("read_session", (session,))
    with decoding("a session's row"):
        found = rows.session_of(row, clock.boot_id, clock.boot_ms()) if row is not None else None
    lost = validation.lease_lost(session, found)
    if found is None or lost is not None:
        raise lost or LeaseLost(session)
    return found


def release(tx: Transaction, session: Session, cause: Cause, evidence: Evidence | None, damaged: str) -> None:
    """End a session and release its runs, except those whose rows are damaged."""
    tx.do("end_session", (tx.now_ms, cause.value, rows.row_of_evidence(evidence), session.id))
    log: list[NewEntry] = []
    released: list[RunRow] = []
    for row in tx.all("runs_of_session", (session.id, damaged)):
        with decoding("a run's row"):
            run = rows.run_of(row)
        progressed = run.deaths > 0 and tx.one("has_progressed", (run.number, run.death_length)) is not None
        after = deaths.released(run, cause, tx.now_ms, has_progressed=progressed)
        released.append(after)
        log.append(recovery_log.left(session, run, after, cause))
    if log:
        tx.write("update_run", [changes_of(run) for run in released])
        append_log(tx, [recovery_log.ended(session, cause, evidence, len(log)), *log])
    tx.wakes = True


def numbers_waiting(tx: Transaction, agents: Sequence[str], queues: Sequence[str]) -> list[int]:
    """Return the numbers of all unclaimed runs, read from the index only: their rows may be damaged."""
    return [
        row[0] for agent in agents for queue in queues for row in tx.all("waiting_numbers", (queue, agent))
    ]
