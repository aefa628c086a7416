"""The walk over everything that a store holds: in parts, from any position on, with the faults of each part.

`verify` walks over all of it at once, `verify_part` over one small part; both are this code. A store says in
sections how its rows are read. A position is text: the section's name, and how far it got there. Each part
reads for itself and writes nothing, so a walk may stop anywhere and go on in another process. What is written
behind the position meanwhile is for the next walk.

If we die here: nothing; the caller goes on from its last position.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt, StoreError, StoreUnavailable, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.rules import lost_rows
from ninelives.core.rules.duplicates import duplicates_in, is_second_use
from ninelives.core.rules.lost_rows import SignalNumbers
from ninelives.core.values import blobs
from ninelives.store import WHOLE, Fault, Progress, Sample, VerifiedPart
from ninelives.stores.shared import rows

Tx = TypeVar("Tx")
Answer = TypeVar("Answer")
Read = Callable[[Callable[[Tx], Any]], Any]
"""Runs something in a reading transaction, and returns what it returned."""
Check = Callable[[Tx], Sequence[Fault] | None]
READERS: dict[str, Callable[[rows.Row], object]] = {
    "all_keys": rows.key_of,
    "all_items": rows.item_of,
    "all_signals": lambda row: rows.signal_of("", row),
    "all_sessions": lambda row: rows.session_of(row, "", 0),
    "all_documents": rows.document_of,
    "all_counters": rows.counter_of,
}
"""By statement, what reads a row of it: every row other than those of journals."""
MOST_RECORDS = 2000
"""A part ends with the run that reaches so many records."""
_AT_ONCE = 1000  # what `verify` reads in a part


class Found(Struct):
    """What a section found in one part; `after` is where the next part begins, None at the section's end."""

    after: str | None
    faults: list[Fault] = []
    rows: int = 0
    runs: int = 0
    at: int = 0
    of: int = 0


Section = Callable[[Read[Any], str, int, Sample], Found]
"""One kind of what is verified; reads at most so many rows after a position of its own ("": the first)."""
Sections = Mapping[str, Section]


def verify(read: Read[Tx], sections: Sections, progress: Progress | None) -> list[Fault]:
    """Walk over everything; collect all faults, not only the first."""
    found: list[Fault] = []
    position = ""
    while True:
        part = verify_part(read, sections, position, _AT_ONCE, WHOLE)
        found += part.faults
        if progress is not None and part.of:
            progress(part.at, part.of)
        position = part.position
        if not position:
            return found


def verify_part(
    read: Read[Tx], sections: Sections, position: str, limit: int, sample: Sample
) -> VerifiedPart:
    """Verify the next part; a position that this version does not know begins again."""
    names = list(sections)
    name, _, after = position.partition(":")
    if name not in sections:
        name, after = names[0], ""
    found = _guarded(sections[name], read, after, max(1, limit), sample)
    if found.after is not None:
        position = f"{name}:{found.after}"
    else:
        later = names[names.index(name) + 1 :]
        position = f"{later[0]}:" if later else ""
    return VerifiedPart(
        position=position,
        faults=tuple(found.faults),
        rows=found.rows,
        runs=found.runs,
        at=found.at,
        of=found.of,
    )


def _guarded(section: Section, read: Read[Any], after: str, limit: int, sample: Sample) -> Found:
    try:
        return section(read, after, limit, sample)
    except StoreUnavailable:
        raise
    except StoreError as error:
        # Its rows cannot be listed: no position in it leads on.
        return Found(None, [Fault(None, error.what)])


def _faults(run: str | None, read: Read[Any], check: Check[Any]) -> Sequence[Fault]:
    try:
        return read(check) or ()
    except UnknownRun:
        return ()  # pruned meanwhile
    except StoreUnavailable:
        raise
    except StoreError as error:
        return [Fault(run, error.what)]
    except (KeyError, ValueError, TypeError) as error:
        return [Fault(run, f"a row holds a value that is never written: {error}")]


def is_sampled(name: bytes, sample: Sample) -> bool:
    """Return whether a run or blob belongs to a sample; another salt chooses others."""
    if sample.share >= 1:
        return True
    digest = blake2b(name, digest_size=8, salt=sample.salt.to_bytes(16, "big")).digest()
    return int.from_bytes(digest, "big") < sample.share * 2**64


# Sections ----------------------------------------------------------------------------------------


def whole(*checks: Check[Tx]) -> Section:
    """Make a section that is read at once: its checks cannot be divided."""

    def section(read: Read[Any], after: str, limit: int, sample: Sample) -> Found:  # noqa: ARG001
        return Found(None, [fault for check in checks for fault in _faults(None, read, check)], rows=1)

    return section


def pages(page: Callable[[Tx, str, int], tuple[list[Fault], int, str | None]]) -> Section:
    """Make a section of rows; `page` returns the faults of the next rows, their number, and the last one."""

    def section(read: Read[Any], after: str, limit: int, sample: Sample) -> Found:  # noqa: ARG001
        faults, count, last = read(lambda tx: page(tx, after, limit))
        return Found(last, faults, rows=count)

    return section


def orphans(
    last: Callable[[Any], int], listed: Callable[[Any, int, int], Sequence[tuple[int, bool]]]
) -> Section:
    """Make a section of records without a run, by the run's number; `listed` says of each if it is stray."""

    def section(read: Read[Any], after: str, limit: int, sample: Sample) -> Found:  # noqa: ARG001
        done, _, given = after.partition("/")
        end = int(given) if given else read(last)
        found = read(lambda tx: listed(tx, int(done or 0), limit))
        faults = [
            Fault(None, f"records of a run without a row (number {number})")
            for number, is_stray in found
            if is_stray
        ]
        is_end = len(found) < limit or found[-1][0] >= end
        return Found(None if is_end else f"{found[-1][0]}/{end}", faults, rows=len(found))

    return section


class Beside(Struct):
    """What a store has beside a run's journal, for comparison: see `core.rules.lost_rows`.

    `sessions` are those of the run's session and of the one that left it that the store knows, `blobs` those
    that it keeps for the run.
    """

    keys: Mapping[str, Key]
    items: Mapping[str, ItemState]
    signals: SignalNumbers
    sessions: Container[str]
    blobs: Container[bytes]


class Runs(Struct, Generic[Tx]):
    """A section of runs. Each function may raise Corrupt.

    `last` returns the highest number of a run, `listed` the runs between two numbers, by number. `journal`
    returns a run's row and its stored records, `faults` the faults of these, and `beside` what the store has
    about the run outside its journal, with the rows of some keys.
    """

    last: Callable[[Tx], int]
    listed: Callable[[Tx, int, int, int], list[tuple[int, str]]]
    journal: Callable[[Tx, str], tuple[RunRow, Sequence[Record]]]
    faults: Callable[[Tx, RunRow, Sequence[Record]], list[Fault]]
    beside: Callable[[Tx, RunRow, list[str]], Beside]

    def __call__(self, read: Read[Any], after: str, limit: int, sample: Sample) -> Found:
        """Verify the next runs, one read for each. Runs that come later are for the next walk."""
        done, _, end = after.partition("/")
        # Up to the last run at the beginning: a busy store would never come to an end.
        number, last = int(done or 0), int(end) if end else read(self.last)
        listed = read(lambda tx: self.listed(tx, number, last, limit))
        found = Found(None, [], at=number, of=last)
        for number, run in listed:
            found.at = number
            if is_sampled(run.encode(), sample):
                found.runs += 1
                found.faults += _faults(run, read, partial(self._of_run, run, found))
            if found.rows >= MOST_RECORDS:
                break
        is_end = len(listed) < limit and (not listed or found.at == listed[-1][0])
        found.after = None if is_end else f"{found.at}/{last}"
        return found

    def _of_run(self, run_id: str, found: Found, tx: Tx) -> list[Fault]:
        run, records = self.journal(tx, run_id)
        found.rows += 1 + len(records)
        faults = self.faults(tx, run, records)
        lost = self._lost_rows(tx, run, records)
        if lost:
            # Not every store reads in one view, and the run may go on, or be pruned: what was written before
            # the rows were read is in the journal now.
            again = set(self._lost_rows(tx, *self.journal(tx, run_id)))
            lost = [what for what in lost if what in again]
        twice = [] if faults else [Fault(run_id, what, kind) for kind, what in _duplicates(records)]
        return [*faults, *(Fault(run_id, what, is_second_use(what)) for what in lost), *twice]

    def _lost_rows(self, tx: Tx, run: RunRow, records: Sequence[Record]) -> list[str]:
        """Say which rows are lost or too old, by the run's row and by its journal."""
        try:
            named = lost_rows.named_in(records)
            beside = self.beside(tx, run, list(named.keys))
            owners = [name for name in (run.session, run.left_by) if name and name not in beside.sessions]
            return [
                *(f"its session {name!r} is not in the store" for name in owners),
                *lost_rows.lost_keys(run.id, named, beside.keys),
                *lost_rows.lost_signals(named, beside.signals, is_whole=run.base == 0),
                *lost_rows.lost_items(named, beside.items),
                *lost_rows.lost_references(run.id, records, beside.keys.values(), beside.blobs),
            ]
        except Corrupt:
            return []  # the check of the journal, or of that table, reports it


def _duplicates(records: Sequence[Record]) -> list[tuple[str, str]]:
    try:
        return list(duplicates_in(records))
    except Corrupt:
        return []  # a body that this version cannot read proves nothing


class Blobs(Struct, Generic[Tx]):
    """A section of blobs: the digests after one, in an order of the store's; None: just pruned."""

    listed: Callable[[Tx, str, int], tuple[list[bytes], str | None]]
    packed: Callable[[Tx, bytes], bytes | None]

    def __call__(self, read: Read[Any], after: str, limit: int, sample: Sample) -> Found:
        """Read the next blobs, one at a time, and compare each with its digest."""
        digests, last = read(lambda tx: self.listed(tx, after, limit))
        wanted = [digest for digest in digests if is_sampled(digest, sample)]
        found = Found(last, [], rows=len(wanted))
        for digest in wanted:
            found.faults += _faults(None, read, partial(self._unpack, digest))
        return found

    def _unpack(self, digest: bytes, tx: Tx) -> None:
        content = self.packed(tx, digest)
        if content is not None:
            blobs.unpack(digest, content)


# What the sections of several stores share ---------------------------------------------------------


def signal_numbers(found: Iterable[tuple[int, int | None]]) -> SignalNumbers:
    """Return the numbers of signals in a store that keeps a row for each: its number, and what took it."""
    taken = dict(found)
    waiting = frozenset(number for number, by in taken.items() if by is None)
    return SignalNumbers(max(taken, default=0), waiting, frozenset(taken) - waiting)


def runs_by_sql(
    journal: Callable[[Any, str], tuple[RunRow, Sequence[Record]]],
    beside: Callable[[Any, RunRow, list[str]], Beside],
) -> Runs[Any]:
    """Make the section of runs of a store whose statements `last_run` and `runs_between` list them."""
    return Runs(
        last=lambda tx: tx.all("last_run")[0][0],
        listed=lambda tx, after, last, limit: tx.all("runs_between", (after, last, limit)),
        journal=journal,
        faults=lambda _, run, records: run_faults(run, records),
        beside=beside,
    )


STRAY_RECORDS = orphans(
    last=lambda tx: tx.all("last_recorded")[0][0],
    listed=lambda tx, after, limit: tx.all("stray_records", (after, limit)),
)
"""The section of records without a run, of a store that uses SQL."""


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


def stray_key(key: str, run: str, state: str) -> Fault:
    """Return the fault of a key that is still held for a run that cannot settle it."""
    return Fault(run, f"key {key!r} is {state} by a run that has ended or does not exist")


def missing_blob(run: str, digest: bytes) -> Fault:
    """Return the fault of a run that refers to a blob that is not there."""
    return Fault(run, f"blob {digest.hex()} is missing")


class KeyedRows(Struct, frozen=True):
    """Rows that are read in pages by their key: its columns in a row, and what comes before all keys."""

    name: str
    at: tuple[int, ...]
    start: tuple[str | int | bytes, ...]

    def values(self, after: str) -> tuple[str | int | bytes, ...]:
        """Return the key at a position."""
        if not after:
            return self.start
        parts = zip(self.start, msgspec.json.decode(after, type=list[str | int]), strict=True)
        return tuple(bytes.fromhex(str(part)) if isinstance(start, bytes) else part for start, part in parts)

    def position(
        self, before: tuple[str | int | bytes, ...], found: Sequence[rows.Row], limit: int
    ) -> str | None:
        """Return the position after a page; None at the end. Raises Corrupt when rows are in disorder."""
        if len(found) < limit:
            return None
        last = tuple(found[-1][column] for column in self.at)
        # Damage to a key puts its row in a wrong place: a walk that follows it may come back, without end.
        if not before < last:
            raise Corrupt(f"the rows of {self.name} are not in order behind {before!r}")
        return msgspec.json.encode(
            [part.hex() if isinstance(part, bytes) else part for part in last]
        ).decode()


def last_of(found: Sequence[Answer], limit: int, name: Callable[[Answer], str]) -> str | None:
    """Return the position after a page of rows: that of its last row, or None if the page was not full."""
    return name(found[-1]) if len(found) == limit else None
