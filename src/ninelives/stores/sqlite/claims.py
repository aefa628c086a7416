"""Creating and claiming runs, and releasing those of a session that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Session
from ninelives.core.rules import run_rules
from ninelives.stores.shared import creation, rows, sessions
from ninelives.stores.shared.rows import decoding
from ninelives.stores.shared.selection import Wanted
from ninelives.stores.shared.sessions import Ending
from ninelives.stores.sqlite import lookups
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.recovery_log import append as append_log
from ninelives.stores.sqlite.tables import Tables
from ninelives.stores.sqlite.transaction import Transaction, save_runs

# Priorities are below 2**31 (validation), so this is above each of them.
_ABOVE_ALL = 2**62
Answer = TypeVar("Answer")
Waiting = frozenset[tuple[str, str, bool]]
"""Queue, agent and whether solo (suspects are claimed solo), for which at least one run is unclaimed."""


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; see `Store.create_runs`. The caller has checked that the session may act."""
    return creation.create(tx, Tables(tx), batch, lambda: session)


def peek(tx: Transaction, wanted: Wanted) -> Claims:
    """Return when the next wanted runs fall due, and claim nothing."""
    if wanted.only is not None:
        return Claims((), _family_due(tx, wanted.only, wanted), halts=lookups.halts_version(tx))
    waiting = _waiting_agents(tx, wanted)
    suspects = _next_due(tx, waiting, wanted.host, solo=True)
    others = suspects if wanted.solo else _next_due(tx, waiting, wanted.host, solo=False)
    return Claims((), others, suspects, halts=lookups.halts_version(tx))


def claim(tx: Transaction, owner: Session, limit: int, wanted: Wanted, damaged: str) -> Claims:
    """Claim due runs for a session; see `Store.claim_runs`. Skips the numbers in `damaged`, a JSON list."""
    if wanted.only is not None:
        return _claim_family(tx, owner, wanted.only, limit, wanted)
    solo, host = wanted.solo, wanted.host
    # One suspect at a time: with two, their worker's death could not be attributed (core/rules/deaths.py).
    limit = min(limit, 1) if solo else limit
    # Read once: the claims below can only empty queues, and `_next_due` copes with an empty one.
    waiting = _waiting_agents(tx, wanted)
    due = [
        run
        for agent, quota in wanted.quotas.items()
        for queue in wanted.queues
        if (queue, agent, solo) in waiting
        for run in _due(tx, agent, min(quota, limit), queue, host, damaged, solo)
    ]
    given = run_rules.chosen(due, wanted.quotas, limit, solo=solo)
    claimed = tuple(run_rules.claimed(run, owner.id, tx.now_ms) for run in given)
    save_runs(tx, claimed)
    suspects = _next_due(tx, waiting, host, solo=True)
    others = suspects if solo else _next_due(tx, waiting, host, solo=False)
    return Claims(claimed, others, suspects, halts=lookups.halts_version(tx))


def _waiting_agents(tx: Transaction, wanted: Wanted) -> Waiting:
    """Return which agents have unclaimed runs, in one query: a worker knows many agents, most have none."""
    values = tuple(msgspec.json.encode(names).decode() for names in (list(wanted.quotas), wanted.queues))
    return frozenset((queue, agent, bool(solo)) for queue, agent, solo in tx.all("waiting_agents", values))


def _claim_family(tx: Transaction, owner: Session, run_id: str, limit: int, wanted: Wanted) -> Claims:
    """Claim a run and its descendants for a session, as far as they are due."""
    waiting = _family_waiting(tx, run_id, wanted)
    due = [run for run in waiting if run.due_ms is not None and run.due_ms <= tx.now_ms]
    given = run_rules.chosen(due, wanted.quotas, limit)
    claimed = tuple(run_rules.claimed(run, owner.id, tx.now_ms) for run in given)
    save_runs(tx, claimed)
    return Claims(claimed, _family_due(tx, run_id, wanted), halts=lookups.halts_version(tx))


def _family_due(tx: Transaction, run_id: str, wanted: Wanted) -> int | None:
    """Return when the first claimable run among a run and its descendants falls due here."""
    dues = (run.due_ms for run in _family_waiting(tx, run_id, wanted))
    return min((due for due in dues if due is not None), default=None)


def _family_waiting(tx: Transaction, run_id: str, wanted: Wanted) -> list[RunRow]:
    with decoding("a run's row"):
        found = [rows.run_of(row) for row in tx.all("family_waiting", (run_id,))]
    return [run for run in found if wanted.fits(run)]


def _due(
    tx: Transaction, agent: str, quota: int, queue: str, host: str | None, damaged: str, solo: bool
) -> list[RunRow]:
    """Return all candidates among an agent's due runs; of suspects, one of each priority."""
    found: list[RunRow] = []
    left = quota
    for priority in _priorities(tx, queue, agent, solo):
        if left <= 0:
            break
        values = (queue, agent, priority, tx.now_ms, host, left, damaged, solo)
        with decoding("a run's row"):
            batch = [rows.run_of(row) for row in tx.all("due_runs", values)]
        found += batch
        # Of suspects the longest waiting one is chosen, whatever its priority: all priorities must be seen.
        left -= 0 if solo else len(batch)
    return found


def _priorities(tx: Transaction, queue: str, agent: str, solo: bool) -> list[int]:
    found: list[int] = []
    below = _ABOVE_ALL
    while True:
        row = tx.one("next_priority", (queue, agent, solo, below))
        if row is None or row[0] is None:
            return found
        below = row[0]
        found.append(below)


def _next_due(tx: Transaction, waiting: Waiting, host: str | None, *, solo: bool) -> int | None:
    """Return when the next unclaimed run falls due; with `solo`, the next suspect."""
    dues = [
        tx.all("first_due", (queue, agent, priority, host, solo))[0][0]
        for queue, agent, is_suspect in waiting
        if is_suspect is solo
        for priority in _priorities(tx, queue, agent, solo)
    ]
    return min((due for due in dues if due is not None), default=None)


def get_session(tx: Transaction, session: str, clock: Clock) -> Session:
    """Return a session that may still act.

    Raises LeaseLost when it is unknown, has ended, or its lease has run out.
    """
    row = tx.one("read_session", (session,))
    with decoding("a session's row"):
        found = rows.session_of(row, clock.boot_id, clock.boot_ms()) if row is not None else None
    return sessions.may_act(session, found)


def release(tx: Transaction, session: Session, ending: Ending, damaged: str) -> None:
    """End a session and release its runs, except those whose rows are damaged."""
    cause, evidence, _ = ending
    tx.do("end_session", (tx.now_ms, cause.value, rows.row_of_evidence(evidence), session.id))
    with decoding("a run's row"):
        owned = [rows.run_of(row) for row in tx.all("runs_of_session", (session.id, damaged))]
    # Progress matters only to a run that has deaths to forget: the others need no read of their journal.
    suspects = [run for run in owned if run.deaths > 0]
    moved = {run.id for run in suspects if tx.one("has_progressed", (run.number, run.death_length))}
    released = sessions.released(session, ending, owned, moved, tx.now_ms)
    save_runs(tx, released.runs)
    append_log(tx, released.entries)
    lookups.add_counts(tx, released.counts)
    tx.wakes = True


def numbers_waiting(tx: Transaction, wanted: Wanted) -> list[int]:
    """Return the numbers of all unclaimed runs, read from the index only: their rows may be damaged."""
    pairs = [(queue, agent) for agent in wanted.quotas for queue in wanted.queues]
    return [row[0] for pair in pairs for row in tx.all("waiting_numbers", pair)]


class DamagedRuns:
    """The damaged runs that one process has found, by number."""

    def __init__(self, files: Database) -> None:
        self._files = files
        self._numbers: set[int] = set()

    @property
    def numbers(self) -> str:
        """Their numbers, as a JSON list."""
        return msgspec.json.encode(sorted(self._numbers)).decode()

    def write(
        self,
        work: Callable[[Transaction, str], Answer],
        suspects: Callable[[Transaction], list[int]],
        *,
        urgent: bool = False,
    ) -> Answer:
        """Write something that reads the rows of many runs; skip damaged rows and do it once more.

        One damaged run must not hold up the others. Raises Corrupt when the damage is not in a run's row.
        """
        try:
            return self._files.write(lambda tx: work(tx, self.numbers), urgent=urgent)
        except Corrupt:
            # One by one, in transactions of their own: a statement over
            # many rows fails at the first damaged one and does not name it.
            found = {number for number in self._files.read(suspects) if self._is_damaged(number)}
            # Nothing new to skip, so the damage lies elsewhere: trying again would fail in the same way.
            if found <= self._numbers:
                raise
            self._numbers |= found
            return self._files.write(lambda tx: work(tx, self.numbers), urgent=urgent)

    def _is_damaged(self, number: int) -> bool:
        def work(tx: Transaction) -> None:
            row = tx.one("read_run_by_number", (number,))
            with decoding("a run's row"):
                if row is not None:
                    rows.run_of(row)

        try:
            self._files.read(work)
        except Corrupt:
            return True
        return False
