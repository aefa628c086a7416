"""New runs compared with the store: which are created or imported, which exist, which are refused."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, KeyConflict, UsageError
from ninelives.core.model.capsule import Capsule, Imported
from ninelives.core.model.key import Key
from ninelives.core.model.run import NewRun, Record, RunRow
from ninelives.core.rules import capsules as rules
from ninelives.core.rules import run_rules, validation
from ninelives.core.values import blobs
from ninelives.stores.shared.inbound import KeepsDocuments
from ninelives.stores.shared.tables import OpenTransaction, Rows, Tables


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


# Import ------------------------------------------------------------------------------------------


def arrive(
    tx: OpenTransaction, tables: Tables, documents: KeepsDocuments, capsules: Sequence[Capsule], move: str
) -> list[Imported]:
    """Create the runs of a move, once; see `Maintenance.import_runs`."""
    known = documents.find(rules.IN + move)
    if known is not None and known.body == rules.CALLED_BACK:
        raise UsageError(f"the move {move!r} was called back", remedy="Its runs are in the store they left")
    if known is not None:
        found = tables.find(sorted(capsule.run.id for capsule in capsules))
        return [Imported(run=found[one.run.id], is_new=False) for one in capsules if one.run.id in found]
    for run in tables.find(sorted(capsule.run.id for capsule in capsules)).values():
        raise rules.taken_id(run)
    done = take_in(tx, tables, capsules, hold=False)
    documents.write(rules.IN + move, rules.ARRIVED, 0)
    return done


def take_in(
    tx: OpenTransaction, tables: Tables, capsules: Sequence[Capsule], *, hold: bool
) -> list[Imported]:
    """Create runs from capsules; see `Maintenance.import_runs`. Raises before anything is written."""
    named = {capsule.run.id for capsule in capsules}
    for capsule in capsules:
        fault = rules.fault_in_capsule(capsule)
        if fault is None and len(named) != len(capsules):
            fault = UsageError("a run occurs twice among the capsules", run=capsule.run.id)
        if fault is not None:
            raise fault
    known = tables.find(sorted(named))
    for capsule in capsules:
        found = known.get(capsule.run.id)
        if found is not None and not rules.is_known(found, capsule, partial(tables.stored, found)):
            raise rules.exists(found, capsule)
    fresh = [capsule for capsule in capsules if capsule.run.id not in known]
    _require_blobs(tables, fresh)
    draft, made = tables.rows.draft(), dict[str, Imported]()
    arrived = [rules.arriving(one, partial(_body, tables), tx.now_ms, hold=hold) for one in fresh]
    for one in arrived:
        _add_beside(draft, one.capsule)
    # Everything was checked: a store without transactions writes from here on, and not before.
    for number, one in zip(tables.numbers(len(arrived)), arrived, strict=True) if arrived else ():
        run = replace(one.capsule.run, number=number)
        tables.insert([(run, one.capsule.records)])
        tables.rows.runs[run.id] = run
        tables.put_signals(run, rules.queue_of(one.capsule))
        made[run.id] = Imported(run=run, is_new=True, doubts=one.doubts)
    if made:
        tables.rows.keep(draft)
        tables.write_back()
        tx.wakes = True
    there = {name: Imported(run=run, is_new=False) for name, run in known.items()}
    return [(made | there)[capsule.run.id] for capsule in capsules]


def _require_blobs(tables: Tables, capsules: Sequence[Capsule]) -> None:
    wanted = list(dict.fromkeys(digest for capsule in capsules for digest in capsule.blobs))
    known = tables.known_blobs(wanted) if wanted else ()
    for capsule in capsules:
        for digest in capsule.blobs:
            if digest not in known:
                raise validation.lost_blob(capsule.run.id, digest)


def _body(tables: Tables, record: Record) -> bytes:
    packed = tables.packed(record.blobs[0])
    if packed is None:
        raise Corrupt(f"blob {record.blobs[0].hex()} is missing")
    return blobs.unpack(record.blobs[0], packed)


def _add_beside(draft: Rows, capsule: Capsule) -> None:
    """Add what a store keeps beside a run's journal. Raises IdConflict, KeyConflict."""
    for item in capsule.items:
        if draft.items.get(item.id) is not None:
            raise rules.taken_item(item)
        draft.add_item(item)
    run = capsule.run.id
    for key in capsule.keys:
        after = rules.key_on_arrival(draft.keys.get(key.key), key)
        if isinstance(after, KeyConflict):
            raise after
        draft.keys[key.key] = after
        if draft.keeps_holds and after.run == run:
            draft.add_hold(run, key.key)
    if capsule.blobs:
        draft.refers[run] = frozenset(capsule.blobs)


def take_in_keys(tables: Tables, keys: Sequence[Key]) -> None:
    """Take in keys without runs; see `Maintenance.import_keys`. Raises before anything is written."""
    draft = tables.rows.draft()
    for key in keys:
        fault = rules.fault_in_loose_key(key)
        if fault is not None:
            raise fault
        after = rules.key_on_arrival(draft.keys.get(key.key), key)
        if isinstance(after, KeyConflict):
            raise after
        draft.keys[key.key] = after
    if keys:
        tables.rows.keep(draft)
        tables.write_back()
