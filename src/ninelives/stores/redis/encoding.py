"""Rows as bytes and back. Bytes that we never write raise Corrupt, which names the row.

A run's row has two parts. The tail holds what its owner's appends change: whether it runs, epoch, length and
head (together the fence, which an append compares as bytes), then changed_ms, effect_length, and what scripts
read: base, turn_seq, news; then the sums of its journal (core/model/totals.py). Everything else is in the
other part, which only slow writes change.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ninelives.core.journal.chain import CHECK_BYTES
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.model.session import NewSession, Session
from ninelives.core.model.totals import Tally
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode
_ID, _EPOCH, _HEAD, _LENGTH, _BASE, _TURN_SEQ, _NEWS, _CHANGED, _EFFECTS = 0, 12, 14, 15, 16, 19, 22, 29, 30
_IN_TAIL = (_ID, _EPOCH, _HEAD, _LENGTH, _BASE, _TURN_SEQ, _NEWS, _CHANGED, _EFFECTS)
_SUMS = 31  # the columns from here on are the sums of the journal
_FIRST_COLUMNS = 7  # the columns of a record of schema 1
_SESSION_COLUMNS = 14  # the columns of a session of schema 2
_TAIL = re.compile(
    rb"[R.](\d+) (\d+) (.{%d}) (\d+) (\d+) (\d+) (\d+) (\d+) (.+)" % CHECK_BYTES, re.DOTALL
)  # epoch, length, head, changed_ms, effect_length, base, turn_seq, news, the sums
BOOT = "server"  # leases are judged by the server's clock, which a reboot does not reset


def fence(epoch: int, length: int, head: bytes) -> bytes:
    """Return the beginning of the tail of a run that runs under this epoch, with this length and head."""
    return b"R%d %d %b" % (epoch, length, head)


def tail_of(run: RunRow) -> bytes:
    """Return the part of a run's row that appends change."""
    begin = fence(run.epoch, run.length, run.head)
    if run.state is not State.RUNNING:
        # A run that is not running has no fence that an append could match, whatever epoch and head it sends.
        begin = b"." + begin[1:]
    rest = (run.changed_ms, run.effect_length, run.base, run.turn_seq, run.news)
    return b"%b %d %d %d %d %d %b" % (begin, *rest, sums_of(run))


def sums_of(run: RunRow | Tally | None) -> bytes:
    """Return the tail's sums of the journal; empty for None, which leaves them unchanged."""
    return b"" if run is None else _encode(rows.sums_of(run))


def has_sums(tail: bytes) -> bool:
    """Return whether a tail has the sums of the journal: one of schema 1 does not."""
    return _TAIL.fullmatch(tail) is not None


def rest_of(run: RunRow) -> bytes:
    """Return the other part of a run's row."""
    row: list[Any] = list(rows.row_of(run)[:_SUMS])
    for column in _IN_TAIL:
        row[column] = None
    return _encode(row)


def run_of(run: str, rest: bytes | None, tail: bytes | None) -> RunRow | None:
    """Return the run of the two parts of its row, or None if it does not exist. Raises Corrupt."""
    if rest is None and tail is None:
        return None
    with decoding("the run's row", run):
        found = _TAIL.fullmatch(tail or b"")
        if found is None or rest is None:
            raise ValueError("a part of it is missing or torn")
        epoch, length, head, *others, sums = found.groups()
        row = [*_decode(rest), *_decode(sums)]
        row[_ID], row[_HEAD] = run, head
        numbers = (_EPOCH, _LENGTH, _CHANGED, _EFFECTS, _BASE, _TURN_SEQ, _NEWS)
        for column, number in zip(numbers, (epoch, length, *others), strict=True):
            row[column] = int(number)
        made = rows.run_of(tuple(row))
        # The state is in one part and the fence in the other:
        # parts of two different moments contradict each other here.
        if (made.state is State.RUNNING) != (tail is not None and tail.startswith(b"R")):
            raise ValueError(f"it is {made.state} and its fence says otherwise")
        return made


def record_bytes(record: Record) -> bytes:
    """Return a record's bytes."""
    return _encode(rows.row_of_record(0, record)[1:])


def record_of(raw: bytes, run: str | None = None) -> Record:
    """Return the record of bytes. Raises Corrupt."""
    with decoding("a record", run):
        row = _decode(raw)
        # Records are never rewritten: those of schema 1 keep their seven columns.
        return rows.record_of(row if len(row) > _FIRST_COLUMNS else (*row, None, None, None))


def signal_bytes(signal: Signal) -> bytes:
    """Return a signal's bytes."""
    return _encode((signal.number, signal.name, signal.id, signal.body, signal.at_ms, signal.taken))


def signal_of(run: str, raw: bytes) -> Signal:
    """Return the signal of bytes. Raises Corrupt."""
    with decoding("a signal", run):
        return rows.signal_of(run, _decode(raw))


def item_bytes(item: Item) -> bytes:
    """Return an item's bytes."""
    return _encode(rows.row_of_item(item))


def item_of(raw: bytes) -> Item:
    """Return the item of bytes. Raises Corrupt."""
    with decoding("an inbox item"):
        return rows.item_of(_decode(raw))


def key_bytes(key: Key) -> bytes:
    """Return a business key's bytes."""
    return _encode(rows.row_of_key(key))


def key_of(raw: bytes) -> Key:
    """Return the business key of bytes. Raises Corrupt."""
    with decoding("a key"):
        return rows.key_of(_decode(raw))


def new_session_bytes(new: NewSession, now_ms: int, boot_ms: int) -> bytes:
    """Return the bytes of a new session."""
    return _encode((*rows.row_of_session(new, now_ms, boot_ms, BOOT), None, None, None, ""))


def session_bytes(session: Session, renewed_boot_ms: int) -> bytes:
    """Return a session's bytes."""
    said = (session.id, session.host, session.pid, session.code, session.lease_ms)
    agents = msgspec.json.encode(session.agents).decode()
    times = (session.started_ms, session.renewed_ms, renewed_boot_ms, BOOT, session.ended_ms)
    cause = session.cause.value if session.cause is not None else None
    evidence = rows.row_of_evidence(session.evidence)
    return _encode((*said, agents, session.keeper, *times, cause, evidence, session.counts))


def session_of(raw: bytes, boot_ms: int) -> tuple[Session, int]:
    """Return the session of bytes, and when it was renewed by the clock of leases. Raises Corrupt."""
    with decoding("a session's row"):
        row = _decode(raw)
        # Rows of schema 2 have no counts; they get some with the next renewal.
        whole = row if len(row) > _SESSION_COLUMNS else (*row, "")
        return rows.session_of(whole, BOOT, boot_ms), int(row[9])


def entry_bytes(entry: LogEntry) -> bytes:
    """Return the bytes of a recovery log entry."""
    return _encode(rows.row_of_entry(entry))


def entry_of(raw: bytes) -> LogEntry:
    """Return the entry of bytes. Raises Corrupt."""
    with decoding("an entry of the recovery log"):
        return rows.entry_of(_decode(raw))


def document_bytes(document: Document) -> bytes:
    """Return a document's bytes."""
    return _encode(rows.row_of_document(document))


def beginning_of_document(name: str, version: int) -> bytes:
    """Return how the bytes of a document at this version begin, and no others do."""
    # Each value of msgpack says where it ends; the two that follow take a byte each.
    return _encode((name, version, None, None))[: -len(_encode(None)) * 2]


def document_of(raw: bytes) -> Document:
    """Return the document of bytes. Raises Corrupt."""
    with decoding("a document"):
        return rows.document_of(_decode(raw))
