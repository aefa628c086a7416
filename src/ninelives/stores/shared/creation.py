"""A batch of new runs compared with the store: which are created, which exist, which are refused."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from ninelives.core.errors import UsageError
from ninelives.core.model.run import NewRun, RunRow
from ninelives.core.rules import run_rules, validation
from ninelives.stores.shared.tables import OpenTransaction, Tables


def create(
    tx: OpenTransaction, tables: Tables, batch: Sequence[NewRun], owner: Callable[[], str | None]
) -> list[RunRow | UsageError]:
    """Create runs; for an id that exists, answer with that run; see `Store.create_runs`.

    `owner` returns the session that gets those that are due. Raises LeaseLost.
    """
    wanted = NewRuns(batch)
    # Parents stay guarded: a parent that ended meanwhile would not cancel a child that it cannot see yet.
    known = tables.find(wanted.names)
    blobs = tables.known_blobs(wanted.blobs) if wanted.blobs else ()
    # After the other reads: PostgreSQL was asked for the session before them, and the answers come together.
    session = owner()
    fresh = wanted.fresh(known, blobs)
    if fresh:
        numbered = zip(tables.numbers(len(fresh)), fresh, strict=True)
        made = [run_rules.created(new, number, tx.now_ms, session) for number, new in numbered]
        tables.insert(made)
        tx.wakes = any(run.session is None for run, _ in made)
        known |= {run.id: run for run, _ in made}
    return wanted.answers(known)


class NewRuns:
    """New runs that are requested together; see `Store.create_runs`."""

    def __init__(self, batch: Sequence[NewRun]) -> None:
        self._batch = batch
        self._faulty = [validation.fault_in_new(new) for new in batch]
        sound = [new for new, fault in zip(batch, self._faulty, strict=True) if fault is None]
        names = (name for new in sound for name in (new.id, new.parent) if name is not None)
        self.names = sorted(set(names))
        """The runs to read first: the requested ones and their parents."""
        self.blobs = list(dict.fromkeys(digest for new in sound for digest in run_rules.blobs_of(new)))
        """The blobs that must exist."""
        self._fresh: dict[str, NewRun] = {}
        self._refused: dict[int, UsageError] = {}

    def fresh(self, known: Mapping[str, RunRow], blobs: Container[bytes]) -> list[NewRun]:
        """Return the runs to create, in order, given which of the named runs and blobs exist."""
        for position, (new, fault) in enumerate(zip(self._batch, self._faulty, strict=True)):
            # The same id twice in a batch is one run: the second request gets it, or a conflict.
            is_new = fault is None and new.id not in known and new.id not in self._fresh
            error = fault or (_fault_beside(new, known, blobs) if is_new else None)
            if error is not None:
                self._refused[position] = error
            elif is_new:
                self._fresh[new.id] = new
        return list(self._fresh.values())

    def answers(self, known: Mapping[str, RunRow]) -> list[RunRow | UsageError]:
        """Return one answer for each request; `known` now includes the runs that were created."""
        return [
            self._refused[position]
            if position in self._refused
            else known[new.id]
            # Only the request that created the run needs no comparison with it.
            if self._fresh.get(new.id) is new
            else run_rules.same_or_conflict(known[new.id], new)
            for position, new in enumerate(self._batch)
        ]


def _fault_beside(new: NewRun, known: Mapping[str, RunRow], blobs: Container[bytes]) -> UsageError | None:
    """Return the conflict of a new run with its parent's state or with a missing blob, if there is one."""
    refused = run_rules.refuses_children(known.get(new.parent), new.id) if new.parent is not None else None
    if refused is not None:
        return refused
    lost = next(
        (validation.lost_blob(new.id, one) for one in run_rules.blobs_of(new) if one not in blobs), None
    )
    return UsageError(lost.what, run=new.id, remedy=lost.remedy) if lost is not None else None
