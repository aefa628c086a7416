"""Creating and claiming runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ninelives.core.errors import UsageError
from ninelives.core.model.document import HALTS
from ninelives.core.model.run import Claims, NewRun, RunRow, State
from ninelives.core.rules import deaths, run_rules
from ninelives.stores.redis.lookups import halts_version
from ninelives.stores.redis.run_rows import runs_in, save_run
from ninelives.stores.redis.sessions import may_act
from ninelives.stores.redis.tables import MARK, Tables
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import creation
from ninelives.stores.shared.rows import texts
from ninelives.stores.shared.selection import Wanted

_HELD_MS = 500
"""When to try again while no runs may be claimed, unless a wake-up comes first."""


def create(tx: Transaction, batch: Sequence[NewRun], session: str | None) -> list[RunRow | UsageError]:
    """Create runs; see `Store.create_runs`."""
    owner = _owner(tx, session) if session is not None else None
    answers = creation.create(tx, Tables(tx), batch, lambda: owner)
    if owner is not None and any(isinstance(one, RunRow) and one.session == owner for one in answers):
        _note_claims(tx, owner)
    return answers


def _owner(tx: Transaction, session: str) -> str | None:
    """Return the session, or None while workers are awaited and it may get no runs. Raises LeaseLost."""
    row, awaited, _ = _read_session(tx, session)
    may_act(tx, session, row)
    # Created unowned then: no session gets a run while workers are awaited (lost_writes.py).
    return None if awaited else session


def _read_session(tx: Transaction, session: str) -> tuple[bytes | None, int, bytes | None]:
    """Return a session's row, how many workers are awaited, and the document `halts`."""
    row, awaited, halts = tx.ask(
        [
            (b"HGET", tx.names.sessions, session.encode(errors="replace")),
            (b"SCARD", tx.names.awaited),
            (b"HGET", tx.names.documents, HALTS.encode()),
        ]
    )
    return row, awaited, halts


def _note_claims(tx: Transaction, session: str) -> None:
    """Make a concurrent end of the session read again what it owns."""
    tx.do(b"HSET", tx.names.claims, session.encode(), tx.mark)


def _lanes(tx: Transaction, wanted: Wanted, *, solo: bool) -> list[tuple[bytes, str]]:
    """Return the keys of the lanes to search, and the agent of each."""
    return [
        (tx.names.lanes(queue, agent, solo=solo), agent) for agent in wanted.quotas for queue in wanted.queues
    ]


def _waits(run: RunRow, wanted: Wanted) -> bool:
    """Return whether a run could be claimed by this worker, now or later."""
    is_waiting = run.state in (State.PENDING, State.CHECKPOINTED) and run.due_ms is not None
    return is_waiting and not run.paused and wanted.fits(run)


class FoundRuns:
    """The result of a search: the time, the runs that this worker could take, and their rows as read."""

    def __init__(self, now_ms: int, *, is_held: bool, halts: int) -> None:
        self.now_ms, self.is_held, self.halts = now_ms, is_held, halts
        self.runs: dict[str, RunRow] = {}
        self.raw: dict[str, tuple[bytes, bytes]] = {}
        self.suspects: list[RunRow] = []

    def due(self, wanted: Wanted, limit: int) -> list[RunRow]:
        """Return the runs to claim; none while workers are awaited (see lost_writes.py)."""
        if self.is_held:
            return []
        due = [run for run in self.runs.values() if run_rules.is_claimable(run, self.now_ms)]
        return run_rules.chosen(due, wanted.quotas, limit, solo=wanted.solo)

    def claims(self, taken: Mapping[str, RunRow], *, only: str | None) -> Claims:
        """Return what was claimed, and when the next of the others fall due."""
        if self.is_held:
            waiting = (*self.runs.values(), *self.suspects)
            is_due = any(run_rules.is_claimable(run, self.now_ms) for run in waiting)
            return Claims((), self.now_ms + _HELD_MS, None, is_held=is_due, halts=self.halts)
        left = [run.due_ms or 0 for run in self.runs.values() if run.id not in taken]
        suspects = [run.due_ms or 0 for run in self.suspects if run.id not in taken] if only is None else []
        next_due_ms, next_suspect_ms = min(left, default=None), min(suspects, default=None)
        return Claims(tuple(taken.values()), next_due_ms, next_suspect_ms, halts=self.halts)


def claim(tx: Transaction, session: str, limit: int, wanted: Wanted) -> Claims:
    """Claim due runs for a session; see `Store.claim_runs`. If there are none, it has only read."""
    limit, only = min(limit, 1) if wanted.solo else limit, wanted.only
    found = _search(tx, session, wanted, limit) if only is None else _family(tx, session, wanted, only)
    taken: dict[str, RunRow] = {}
    for run in found.due(wanted, limit):
        name = tx.names.run(run.id)
        for part, value in zip((b"r", b"t"), found.raw[run.id], strict=True):
            # The script read these rows outside of any check:
            # two workers that found the same run must collide.
            tx.expect(name, part, value)
        taken[run.id] = run_rules.claimed(run, session, found.now_ms)
        save_run(tx, run, taken[run.id])
    if taken:
        _note_claims(tx, session)
    return found.claims(taken, only=only)


def _search(tx: Transaction, session: str, wanted: Wanted, limit: int) -> FoundRuns:
    main, suspects = _lanes(tx, wanted, solo=wanted.solo), _lanes(tx, wanted, solo=True)
    # Suspects are searched too, for the time only: the worker must know when to come back for one.
    others = [] if wanted.solo else suspects
    quotas = [min(wanted.quotas[agent], limit) for _, agent in main] + [0 for _ in others]
    names = [name for name, _ in (*main, *others)]
    given = b"" if tx.given_now_ms is None else tx.given_now_ms
    values = (session.encode(errors="replace"), (wanted.host or "").encode(), given, tx.names.tag, *quotas)
    keys = [tx.names.sessions, tx.names.awaited, tx.names.documents, *names]
    row, time, awaited, halts, *lists = tx.call("look", keys, values)
    found = FoundRuns(int(time), is_held=bool(awaited), halts=halts_version(halts))
    tx.note_time(found.now_ms)
    may_act(tx, session, row or None)
    for position, listed in enumerate(lists):
        read = {id_.decode(): (rest, tail) for id_, rest, tail in listed}
        waiting = [run for run in runs_in(read.items()).values() if _waits(run, wanted)]
        if position < len(main):
            found.raw |= read
            found.runs |= {run.id: run for run in waiting}
        if position >= len(main) or wanted.solo:
            found.suspects += [run for run in waiting if deaths.is_suspect(run)]
    return found


def _family(tx: Transaction, session: str, wanted: Wanted, run: str) -> FoundRuns:
    """Find the waiting ones among a run and its descendants that this worker can take."""
    family: list[str] = []
    born = texts([run])
    while born:
        family += born
        lists = tx.ask([(b"HKEYS", tx.names.children(name)) for name in born])
        known = set(family)
        born = [name.decode() for names in lists for name in names if name != MARK]
        born = [name for name in dict.fromkeys(born) if name not in known]
    row, awaited, halts = _read_session(tx, session)
    found = FoundRuns(tx.now_ms, is_held=bool(awaited), halts=halts_version(halts))
    may_act(tx, session, row)
    rows = tx.ask([(b"HMGET", tx.names.run(name), b"r", b"t") for name in family])
    found.raw = {name: (rest, tail) for name, (rest, tail) in zip(family, rows, strict=True)}
    waiting = runs_in(found.raw.items())
    found.runs = {name: one for name, one in waiting.items() if _waits(one, wanted)}
    return found
