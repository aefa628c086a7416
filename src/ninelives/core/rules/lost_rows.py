"""Rows that a run's journal proves were written, and that are lost or older than the journal.

A check in each row cannot show that a row is missing, or that a lost write left its earlier version there.
The journal can: what a record says about a key, a signal, an inbox item or a blob was written in the same
commit as that record, and no such row is removed while the journal is kept. Keys are never removed: a key
whose window is over, and one that was pruned, keeps its row.

Rows may be read after the journal. So only what can never come right is reported, and a caller whose reads
are not one view reads twice and believes what it finds both times.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import Request, Taken
from ninelives.core.journal.replay import signal_number_in
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.run import Kind, Record
from ninelives.core.rules.recovery_check import OTHER_RESULT, is_other_result, summary_of

_REQUEST, _TAKEN = msgspec.json.Decoder(Request).decode, msgspec.json.Decoder(Taken).decode
_UNSAID = -1
SECOND_USE = "first used by run "
_OPEN = (Kind.INTENT, Kind.DOUBT)
_DONE = (KeyState.SETTLED, KeyState.PRUNED)


class Named(Struct, frozen=True):
    """The rows that a journal names: keys and items, each with the last record that names it, and signals.

    `signals` maps the number of each taken signal to its record, as far as the records say which they took;
    `says_signals` is whether all do. `over` are the items that were answered or withdrawn.
    """

    keys: Mapping[str, Record]
    settled: Mapping[str, Record]
    items: Mapping[str, int]
    over: frozenset[str]
    signals: Mapping[int, int]
    says_signals: bool


class SignalNumbers(Struct, frozen=True):
    """The numbers of a run's signals: the highest given, those that wait, and those kept after being taken.

    `taken` is None in a store that does not keep them.
    """

    last: int
    waiting: frozenset[int]
    taken: frozenset[int] | None = None


def named_in(records: Sequence[Record]) -> Named:
    """Read the stored records of a run, whose chain was verified. Raises Corrupt."""
    forks = [index for index, record in enumerate(records) if record.kind is Kind.FORKED]
    own = records[forks[-1] + 1 :] if forks else records  # the records before belong to another run
    summary = summary_of(own)
    items: dict[str, int] = {}
    over: set[str] = set()
    signals: dict[int, int] = {}
    for record in own:
        if record.kind is Kind.SIGNAL:
            signals[signal_number_in(record)] = record.seq
        elif (found := _item_in(record)) is not None:
            items[found[0]] = record.seq
            over.update([found[0]] if found[1] else [])
    # Records of before signals had numbers do not say what they took: then a missing number proves nothing.
    is_known = signals.pop(_UNSAID, None) is None
    return Named(summary.named, summary.keys, items, frozenset(over), signals, is_known)


def _item_in(record: Record) -> tuple[str, bool] | None:
    """Return the item that a record names, and whether it is over; None if no engine wrote the body."""
    try:
        if record.kind is Kind.ASKED:
            request = _REQUEST(record.body)
            return request.item, not request.is_open
        if record.kind is Kind.ANSWER:
            return _TAKEN(record.body).item, True
        if record.kind is Kind.DOUBT and (item := read_start(record).i):
            return item, False
    except (msgspec.DecodeError, Corrupt):
        pass
    return None


def lost_keys(run: str, named: Named, rows: Mapping[str, Key]) -> Iterator[str]:
    """Say which keys of a journal are not in the dedup table, or are there as they were before."""
    for key, record in named.keys.items():
        row, last = rows.get(key), named.settled.get(key)
        if row is None:
            yield f"key {key!r}: record {record.seq} names it, and the dedup table does not have it"
        elif last is not None and (what := _behind(run, last, row)):
            yield f"key {key!r}: {what}"


def _behind(run: str, last: Record, row: Key) -> str:
    if row.run != run:
        # A settled key passes to another run only with a new generation. A resumable action that was freed
        # when its run ended may have copied the result of the other run.
        is_second = last.kind is Kind.RESULT and not row.generation and not row.resumable
        return f"{SECOND_USE}{row.run!r}, though record {last.seq} is its result" if is_second else ""
    if last.kind is Kind.RESULT:
        if row.state not in _DONE:
            return f"{row.state}, though record {last.seq} is its result"
        return OTHER_RESULT % last.seq if is_other_result(last, row) else ""
    # The end of a run frees the keys of its resumable actions, and no others.
    is_lost = last.kind in _OPEN and row.state is KeyState.FREE and not row.resumable
    return f"free, though record {last.seq} started its action and nothing ended it" if is_lost else ""


def lost_items(named: Named, states: Mapping[str, ItemState]) -> Iterator[str]:
    """Say which inbox items of a journal are not in the store, or are open after they were answered."""
    for item, seq in named.items.items():
        state = states.get(item)
        if state is None:
            yield f"inbox item {item!r}: record {seq} names it, and the store does not have it"
        elif state is ItemState.OPEN and item in named.over:
            yield f"inbox item {item!r} is open, though record {seq} took its answer or withdrew it"


def lost_references(
    run: str, records: Sequence[Record], keys: Iterable[Key], kept: Container[bytes]
) -> Iterator[str]:
    """Say which blobs a run needs, by its records and its keys, that are not among those kept for it."""
    needed = {digest: f"record {record.seq}" for record in records for digest in record.blobs}
    needed |= {digest: f"key {key.key!r}" for key in keys if key.run == run for digest in key.blobs}
    for digest, what in needed.items():
        if digest not in kept:
            yield f"blob {digest.hex()}: {what} refers to it, and the store does not keep it for this run"


def lost_signals(named: Named, found: SignalNumbers, *, is_whole: bool) -> Iterator[str]:
    """Say which signals of a run are lost, or wait again; `is_whole` says that no record was pruned."""
    taken = named.signals
    for number in sorted(taken.keys() & found.waiting):
        yield f"signal {number} waits, though record {taken[number]} took it"
    if found.taken is None and not (named.says_signals and is_whole):
        return  # which signals were taken is not known
    kept = found.waiting | (taken.keys() if found.taken is None else found.taken)
    for number in sorted({*range(1, found.last + 1), *taken}):
        if number not in kept or number > found.last:
            yield f"signal {number} was sent, and the store does not have it"
