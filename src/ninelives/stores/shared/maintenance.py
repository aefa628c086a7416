"""What operators do with every store: migrate, verify everything, prune what is old.

A store says how its rows are read and removed; the order, and what is a fault, are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from ninelives.core.errors import Corrupt, SchemaMismatch, StoreError, StoreUnavailable, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.rules import lost_rows
from ninelives.core.rules.lost_rows import SignalNumbers
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.shared import rows

Tx = TypeVar("Tx")
Value = TypeVar("Value")
Answer = TypeVar("Answer")
Transact = Callable[[Callable[[Tx], Any]], Any]
"""Runs something in a transaction, and returns what it returned."""
Check = Callable[[Tx], Sequence[Fault] | None]
READERS: dict[str, Callable[[rows.Row], object]] = {
    "all_keys": rows.key_of,
    "all_items": rows.item_of,
    "all_signals": lambda row: rows.signal_of("", row),
    "all_sessions": lambda row: rows.session_of(row, "", 0),
}
"""By statement, what reads a row of it: every row other than those of journals."""


@cache
def migrations(package: str) -> tuple[str, ...]:
    """Return the migrations of a store that has them as SQL files, in order; the n-th makes version n."""
    folder = files(package).joinpath("migrations")
    named = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return tuple(file.read_text(encoding="utf-8") for file in named)


def unknown_version(version: object, least: int, last: int) -> SchemaMismatch:
    """Return the error for a store of a version that this one cannot read."""
    return SchemaMismatch(
        f"the store has schema version {version}; this Nine Lives knows {least} to {last}",
        remedy="Upgrade ninelives, or open the store with the version that wrote it",
    )


def _called(work: Callable[[Tx, Value], Answer], value: Value, tx: Tx) -> Answer:
    return work(tx, value)


def stats_of(counts: Iterable[tuple[str, int]], others: Iterable[int]) -> Stats:
    """Return measures: runs by state, and all the others in the order of `Stats`."""
    runs = dict.fromkeys(State, 0) | {State(state): count for state, count in counts}
    return Stats(runs=runs, **dict(zip(Stats.__struct_fields__[1:], others, strict=True)))


# Verify ------------------------------------------------------------------------------------------


class Beside(Struct):
    """What a store has beside a run's journal, for comparison: see `core.rules.lost_rows`.

    `sessions` are those of the run's session and of the one that left it that the store knows.
    """

    keys: Mapping[str, Key]
    items: Mapping[str, ItemState]
    signals: SignalNumbers
    sessions: Container[str]


class Checks(Struct, Generic[Tx]):
    """How a store reads what is verified. Each may raise Corrupt; `packed` is None for a blob just pruned.

    `journal` returns a run's row and its stored records, `run` the faults of these, and `beside` what the
    store has about the run outside its journal, with the rows of some keys.
    """

    structure: Sequence[Check[Tx]]
    run_ids: Callable[[Tx], list[str]]
    journal: Callable[[Tx, str], tuple[RunRow, Sequence[Record]]]
    run: Callable[[Tx, RunRow, Sequence[Record]], list[Fault]]
    beside: Callable[[Tx, RunRow, list[str]], Beside]
    others: Sequence[Check[Tx]]
    digests: Callable[[Tx], list[bytes]]
    packed: Callable[[Tx, bytes], bytes | None]


def verify(read: Transact[Tx], checks: Checks[Tx], progress: Progress | None) -> list[Fault]:
    """Read every chain, every row and every blob; collect all faults, not only the first."""
    found = [fault for check in checks.structure for fault in _guarded(None, read, check)]
    ids = _listed(read, checks.run_ids, found)
    for done, run in enumerate(ids, 1):
        found += _guarded(run, read, partial(_run_faults, checks, run))
        if progress is not None:
            progress(done, len(ids))
    for check in checks.others:
        found += _guarded(None, read, check)
    for digest in _listed(read, checks.digests, found):
        found += _guarded(None, read, partial(_unpack, checks.packed, digest))
    return found


def _run_faults(checks: Checks[Tx], run_id: str, tx: Tx) -> list[Fault]:
    run, records = checks.journal(tx, run_id)
    found = checks.run(tx, run, records)
    lost = _lost_rows(checks, tx, run, records)
    if lost:
        # Not every store reads in one view, and the run may go on, or be pruned: what was written before the
        # rows were read is in the journal now.
        again = set(_lost_rows(checks, tx, *checks.journal(tx, run_id)))
        lost = [what for what in lost if what in again]
    return found + [Fault(run_id, what) for what in lost]


def _lost_rows(checks: Checks[Tx], tx: Tx, run: RunRow, records: Sequence[Record]) -> list[str]:
    """Say which rows are lost or too old, by the run's row and by its journal."""
    try:
        named = lost_rows.named_in(records)
        beside = checks.beside(tx, run, list(named.keys))
        owners = [name for name in (run.session, run.left_by) if name and name not in beside.sessions]
        return [
            *(f"its session {name!r} is not in the store" for name in owners),
            *lost_rows.lost_keys(run.id, named, beside.keys),
            *lost_rows.lost_signals(named, beside.signals, is_whole=run.base == 0),
            *lost_rows.lost_items(named, beside.items),
        ]
    except Corrupt:
        return []  # the check of the journal, or of that table, reports it


def signal_numbers(found: Iterable[tuple[int, int | None]]) -> SignalNumbers:
    """Return the numbers of signals in a store that keeps a row for each: its number, and what took it."""
    taken = dict(found)
    waiting = frozenset(number for number, by in taken.items() if by is None)
    return SignalNumbers(max(taken, default=0), waiting, frozenset(taken) - waiting)


def _listed(read: Transact[Tx], ask: Callable[[Tx], list[Answer]], found: list[Fault]) -> list[Answer]:
    try:
        listed: list[Answer] = read(ask)
    except StoreUnavailable:
        raise
    except StoreError as error:
        found.append(Fault(None, error.what))
        return []
    return listed


def _guarded(run: str | None, read: Transact[Tx], check: Check[Tx]) -> Sequence[Fault]:
    try:
        return read(check) or ()
    except UnknownRun:
        return ()  # pruned meanwhile
    except StoreError as error:
        return [Fault(run, error.what)]
    except (KeyError, ValueError, TypeError) as error:
        return [Fault(run, f"a row holds a value that is never written: {error}")]


def _unpack(packed: Callable[[Tx, bytes], bytes | None], digest: bytes, tx: Tx) -> None:
    content = packed(tx, digest)
    if content is not None:
        blobs.unpack(digest, content)


def run_faults(run: RunRow, records: Sequence[Record] | None = None) -> list[Fault]:
    """Return what is wrong with a run's row, and with its journal if that was not verified before."""
    found = []
    try:
        if records is not None:
            chain.verify(run.id, run.base_check, run.base, records, length=run.length, head=run.head)
    except Corrupt as error:
        found.append(Fault(run.id, error.what))
    if (run.session is not None) != (run.state is State.RUNNING):
        found.append(Fault(run.id, f"the run is {run.state} and its session is {run.session!r}"))
    return found


def row_faults(name: str, found: Iterable[rows.Row], read: Callable[[rows.Row], object]) -> Iterator[Fault]:
    """Read rows one by one, so that each fault is found."""
    for row in found:
        try:
            read(row)
        except Corrupt as error:
            yield Fault(error.run, error.what)
        except (ValueError, KeyError, TypeError) as error:
            yield Fault(None, f"a row of {name.removeprefix('all_')} ({row[0]!r}): {error}")


class SqlTransaction(Protocol):
    """A transaction of a store that has statements by name."""

    def all(self, name: str) -> list[rows.Row]:
        """Return all rows of a statement."""


def orphans(tx: SqlTransaction) -> list[Fault]:
    """Return records, blobs and keys whose other half is missing."""
    numbers = (f"records of a run without a row (number {one})" for (one,) in tx.all("stray_records"))
    missing = ((run, f"blob {digest.hex()} is missing") for run, digest in tx.all("missing_blobs"))
    held = [stray_key(*row) for row in tx.all("stray_keys")]
    return [*(Fault(None, what) for what in numbers), *(Fault(*one) for one in missing), *held]


def stray_key(key: str, run: str, state: str) -> Fault:
    """Return the fault of a key that is still held for a run that cannot settle it."""
    return Fault(run, f"key {key!r} is {state} by a run that has ended or does not exist")


# Prune -------------------------------------------------------------------------------------------


class Removal(Struct, Generic[Tx]):
    """How a store removes a part of what is old; each returns nothing when there is no more.

    `clear` returns for each journal how many records and keys went with it; `shorten` continues after a run
    and returns where it got to, or None, and how many records it removed.
    """

    clear: Callable[[Tx], list[tuple[int, int]]]
    shorten: Callable[[Tx, int], tuple[int | None, int]]
    forget: Callable[[Tx], int]
    sweep: Callable[[Tx], int]


def prune(write: Transact[Tx], removal: Removal[Tx]) -> Pruned:
    """Remove journals, turn keys into tombstones, remove blobs; see `Maintenance.prune`."""
    cleared: list[tuple[int, int]] = []
    while part := write(removal.clear):
        cleared += part
    records = sum(removed for removed, _ in cleared)
    after: int | None = 0
    while after is not None:
        after, removed = write(partial(_called, removal.shorten, after))
        records += removed
    return Pruned(
        journals=len(cleared),
        records=records,
        keys=sum(buried for _, buried in cleared),
        runs=_emptied(write, removal.forget),
        blobs=_emptied(write, removal.sweep),
    )


def _emptied(write: Transact[Tx], remove: Callable[[Tx], int]) -> int:
    total = 0
    while gone := write(remove):
        total += gone
    return total
