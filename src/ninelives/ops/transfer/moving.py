"""Move runs to another store, killed at any point: no run can ever be claimed in both.

1. Source: the runs depart. Their owner is fenced, and no worker may claim them.
2. Target: the runs are imported, and the store notes that the move arrived, in one transaction.
3. Source: the runs' rows and their unsettled keys say where they are.

Each step is one transaction and may be repeated, so moving again finishes what a killed process began. Before
step 2 a move can be called back: the target notes first that it must not arrive any more. See
docs/decisions/0029-capsules.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ninelives.core.errors import StaleDocument, UnknownRun, UsageError
from ninelives.core.model.capsule import Move
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import capsules as moves
from ninelives.core.rules.capsules import Journey
from ninelives.ops.transfer.export import WholeStore, parts
from ninelives.ops.transfer.file import BlobLine
from ninelives.stores.encrypted.marker import mark_if_encrypted, stored_in
from ninelives.stores.store_id import store_id
from ninelives.views import documents

_PAGE = 1000
_UNFINISHED = tuple(state for state in State if not state.is_final)


class MovedRuns(Struct, frozen=True):
    """What became of a move: its id, its runs, and whether they are in the other store now."""

    id: str
    runs: tuple[str, ...]
    has_arrived: bool


def move(source: WholeStore, target: WholeStore, names: Sequence[str]) -> list[MovedRuns]:
    """Move runs with their unfinished descendants; finish moves of theirs that were begun before.

    Raises UsageError when they cannot leave, or when the other store refuses them: then they are as before.
    """
    to = store_id(target)
    if to == store_id(source):
        raise UsageError("both URLs name the same store", remedy="Name another one with --to")
    begun, fresh = begun_moves(source, names)
    for journey in begun.values():
        if journey.to != to:
            raise UsageError(
                f"{journey.runs[0].id} is on its way to {journey.url}",
                remedy="Finish that move, or call it back with `ninelives move --back`",
            )
    if fresh:
        made = Move(id=secrets.token_hex(8), to=to, url=target.url)
        tree = [row.id for row in whole_tree(source, fresh)]
        # CRASH: the runs are on their way, or where they were; moving them again continues.
        source.depart_runs(tree, made)
        begun[made.id] = _journey(source, made.id)
    return [_carry(source, target, name, journey) for name, journey in begun.items()]


def _carry(source: WholeStore, target: WholeStore, name: str, journey: Journey) -> MovedRuns:
    target = stored_in(target)
    runs = tuple(one.id for one in journey.runs)
    if journey.stage == "on its way":
        before = {one.id: one for one in journey.runs}
        capsules = []
        for part in parts(source, runs, set()):
            if isinstance(part, BlobLine):
                target.put_blobs([part.content])
            else:
                capsules.append(moves.as_before(part, before[part.run.id]))
        try:
            mark_if_encrypted(target, capsules)
            # CRASH: all runs are in the target, or none is; moving them again finds which.
            target.import_runs(capsules, move=name)
        except UsageError:
            _call_back(source, target, name)
            raise
        # CRASH: the runs run in the target; the source still says that they are on their way.
        source.settle_move(name, arrived=True)
    return MovedRuns(name, runs, has_arrived=True)


def call_back(source: WholeStore, target: WholeStore | None, names: Sequence[str]) -> list[MovedRuns]:
    """Call moves back that have not arrived; those that have are finished instead.

    Without a target, the caller knows that they have not arrived there, and never will.
    """
    begun, fresh = begun_moves(source, names)
    if fresh:
        raise UsageError(f"{fresh[0]} is not on its way anywhere", remedy="Nothing to call back")
    done = []
    for name, journey in begun.items():
        if target is not None and journey.to != store_id(target):
            raise UsageError(f"{journey.runs[0].id} is on its way to {journey.url}", remedy="Name that store")
        has_arrived = _call_back(source, target, name)
        done.append(MovedRuns(name, tuple(one.id for one in journey.runs), has_arrived=has_arrived))
    return done


def _call_back(source: WholeStore, target: WholeStore | None, name: str) -> bool:
    """Call a move back, unless it has arrived; return whether it has."""
    has_arrived = False
    if target is not None:
        try:
            # First the target: a process that was stopped in mid-move must not import the runs later.
            target.write_document(moves.IN + name, moves.CALLED_BACK, version=0)
        except StaleDocument:
            has_arrived = True
    # CRASH: the target takes the move no more, and the source says that it is on its way: call it back again.
    source.settle_move(name, arrived=has_arrived)
    return has_arrived


def begun_moves(store: WholeStore, names: Sequence[str]) -> tuple[dict[str, Journey], list[str]]:
    """Return the moves of those runs that have left, by id, and the runs that have not."""
    left: set[str] = set()
    fresh: list[str] = []
    for name in dict.fromkeys(names):
        row = store.read_run(name)
        if row is None:
            raise UnknownRun("there is no such run", run=name, remedy="Check the id")
        if row.state is State.MOVED:
            left.add(name)
        else:
            fresh.append(name)
    found = {
        name: journey
        for name, journey in (_journeys(store) if left else ())
        if journey.stage != "called back" and left & {one.id for one in journey.runs}
    }
    return found, fresh


def _journeys(store: WholeStore) -> Iterator[tuple[str, Journey]]:
    for document in documents.listing(store, moves.OUT):
        yield document.name.removeprefix(moves.OUT), moves.read_journey(document.body)


def _journey(store: WholeStore, name: str) -> Journey:
    return next(journey for known, journey in _journeys(store) if known == name)


def whole_tree(store: WholeStore, names: Sequence[str]) -> list[RunRow]:
    """Return runs and all their descendants that have not ended."""
    found: dict[str, RunRow] = {}
    left = list(names)
    while left:
        name = left.pop()
        row = store.read_run(name)
        if row is None or name in found or (row.state not in _UNFINISHED and name not in names):
            continue
        found[name] = row
        left += [child.id for child in store.list_runs(RunQuery(parent=name, limit=_PAGE))]
    return list(found.values())
