"""Check a recovered run: its journal against itself, and against the dedup table.

Each change of a key is in the same commit as the record of its reason, so a run's last record that names a
key determines the key's row. Rows that changed since the takeover are checked only for being there: the new
owner is still changing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw, Struct

from ninelives.core.journal.recovery_log import Left
from ninelives.core.journal.replay import read_body
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.run import Kind, Record

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN})
_STARTS = frozenset({Kind.INTENT, Kind.DOUBT, Kind.VOIDED})
_RESETTING = frozenset({Kind.SUPERSEDED, Kind.FORKED})
_OPEN = (Kind.INTENT, Kind.DOUBT)
_HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)
_SEALED = b'"$":"sealed"'
_WITH_KEY = b'"k":'
OTHER_RESULT = "settled with another result than that of record %d"
_LIMIT = "#timeout#"
"""Steps of `nl.timeout` may have two outcomes: code that left in time once may reach the limit on replay."""


class JournalSummary(Struct, frozen=True):
    """What a journal says: the number of outcomes, the last record of each business key, the faults.

    `named` has the last record of all keys, also of those that a later record reset.
    """

    outcomes: int
    keys: dict[str, Record]
    faults: tuple[str, ...]
    named: dict[str, Record] = {}


def summary_of(records: Iterable[Record]) -> JournalSummary:
    """Read records whose chain was verified, of one turn or more. Raises Corrupt."""
    settled: set[str] = set()
    steps: dict[str, str] = {}
    keys: dict[str, Record] = {}
    named: dict[str, Record] = {}
    faults = []
    for record in records:
        if record.kind in _OUTCOMES:
            if record.step in settled and record.kind is Kind.WITHDRAWN:
                continue  # its code was cancelled before delivery: the earlier outcome stands
            if record.step in settled and _LIMIT not in record.step:
                faults.append(f"step {record.step} has two outcomes")
            settled.add(record.step)
            if record.step in steps:
                keys[steps[record.step]] = record
        elif record.kind is Kind.TURN:
            settled.clear()  # each turn counts its steps from the beginning
            steps.clear()
        elif record.kind in _RESETTING:
            settled.clear()
            steps.clear()
            keys.clear()  # a failed run frees its keys, and a fork does not hold those of its parent run
        elif record.kind in _STARTS:
            steps.pop(record.step, None)  # edited code may start without a key what it had started with one
            key = read_start(record).k if _WITH_KEY in record.body else ""
            if key:
                keys[key] = named[key] = record
                if record.kind is not Kind.VOIDED:  # what follows a voided start may be of another key
                    steps[record.step] = key
    return JournalSummary(len(settled), keys, tuple(faults), named)


def faults_of_keys(
    run: str, keys: Mapping[str, Record], rows: Mapping[str, Key], taken_ms: int
) -> tuple[str, ...]:
    """Return where the dedup table contradicts the records of a run that was taken over at `taken_ms`."""
    found = ((key, _contradiction(run, record, rows.get(key), taken_ms)) for key, record in keys.items())
    return tuple(f"key {key!r}: {what}" for key, what in found if what)


def _contradiction(run: str, last: Record, row: Key | None, taken_ms: int) -> str:
    if row is None:
        return f"record {last.seq} names it, and the dedup table does not have it"
    # The new owner, or another run, is changing the row while we compare: it may be right by now.
    if row.run != run or row.changed_ms >= taken_ms:
        return ""
    if last.kind in _OPEN:
        is_open = row.state not in (KeyState.SETTLED, KeyState.FREE)
        return "" if is_open else f"{row.state} by this run, whose record {last.seq} has no outcome"
    if last.kind is Kind.RESULT:
        if row.state in _HELD or row.state is KeyState.FREE:
            return f"{row.state}, though record {last.seq} is its result"
        return OTHER_RESULT % last.seq if is_other_result(last, row) else ""
    return f"reserved, and nothing is under way since record {last.seq}" if row.state is _HELD[0] else ""


def faults_of_state(left: Left, length: int, records: Sequence[Record]) -> tuple[str, ...]:
    """Return where a journal contradicts what the last worker left, by its length and its current turn.

    The head covers all records before it, and so every open step and every held resource.
    """
    if length < left.records:
        return (f"state: the last worker left {left.records} records, and {length} are there",)
    last = next((record for record in records if record.seq == left.records - 1), None)
    is_salvaged = any(record.kind is Kind.SALVAGED for record in records)
    if last is None or is_salvaged or last.check.hex() == left.head:
        return ()
    return (f"state: record {last.seq} is not the one that the last worker left",)


def is_other_result(last: Record, row: Key) -> bool:
    """Return whether a key is settled with another result than this record's; a result in a blob is not."""
    if row.state is not KeyState.SETTLED or not row.body or not last.body:
        return False
    if _SEALED in row.body:
        return False  # the same result, encrypted for two places, differs
    value = read_body(last).v
    return isinstance(value, Raw) and bytes(value) != row.body
