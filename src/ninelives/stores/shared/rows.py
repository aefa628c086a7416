"""Rows to structs and back, for the stores that use SQL. Columns stand in the order of `queries.sql`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from ninelives.core.errors import Corrupt
from ninelives.core.model.counter import Series
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, ItemKind, ItemState, Signal
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.model.run import Kind, Record, RunRow, State, StepKind
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.model.totals import Tally
from ninelives.core.rules import validation
from ninelives.core.values.blobs import DIGEST_BYTES

Row = tuple[Any, ...]
_LABELS = msgspec.json.Decoder(dict[str, str])
_AGENTS = msgspec.json.Decoder(tuple[str, ...])
_EVIDENCE = msgspec.json.Decoder(Evidence)
_AT = {name: at for at, name in enumerate(RunRow.__struct_fields__)}
_LABELS_AT, _STATE_AT = _AT["labels"], _AT["state"]
FLAGS_AT = (_AT["paused"], _AT["cancelling"], _AT["is_alone"])
"""The columns of a run that are true or false."""
_CHANGING = itemgetter(
    *(
        _AT[name]
        for name in ("number", "state", "paused", "cancelling", "epoch", "session", "head", "length")
    ),
    *(_AT[name] for name in ("turn", "turn_seq", "due_ms", "waits", "news", "deaths", "death_length")),
    *(_AT[name] for name in ("changed_ms", "effect_length", "solo_deaths", "is_alone", "left_by")),
    *(_AT[name] for name in ("steps", "tokens_in", "tokens_out", "progress", "last_error", "retrying")),
)
_STATES = {state.value: state for state in State}
_KINDS = {kind.value: kind for kind in Kind}
_WORDS = {kind: kind.value for kind in Kind}  # an enum computes it each time
_STEP_KINDS: dict[str | None, StepKind | None] = {None: None, **{one.value: one for one in StepKind}}


@contextmanager
def decoding(what: str, run: str | None = None) -> Iterator[None]:
    """Turn values that we never write into Corrupt."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, msgspec.DecodeError) as error:
        raise Corrupt(
            f"{what} holds a value that is never written: {error}",
            run=run,
            remedy="Restore the store from a backup; other runs continue",
        ) from error


def texts(names: Iterable[str]) -> list[str]:
    """Return those names that a store could have stored; the others match nothing."""
    return [name for name in names if validation.is_text(name)]


def run_of(row: Row) -> RunRow:
    """Return the run of a row. The columns stand in the order of the run's fields."""
    made = list(row)
    # Most runs have no labels, and a claim reads a hundred rows.
    made[_LABELS_AT] = _LABELS.decode(row[_LABELS_AT]) if row[_LABELS_AT] != "{}" else {}
    made[_STATE_AT] = _STATES[row[_STATE_AT]]
    for at in FLAGS_AT:
        made[at] = bool(row[at])
    return RunRow(*made)


def row_of(run: RunRow) -> Row:
    """Return the whole row of a run."""
    made = list(astuple(run))
    made[_LABELS_AT] = msgspec.json.encode(run.labels).decode() if run.labels else "{}"
    made[_STATE_AT] = run.state.value
    return tuple(made)


def sums_of(run: RunRow | Tally | None) -> Row:
    """Return the columns of a run that sum up its journal; six times None leaves them unchanged."""
    if run is None:
        return (None,) * 6
    return (run.steps, run.tokens_in, run.tokens_out, run.progress, run.last_error, run.retrying)


def changes_of(row: Row) -> Row:
    """Return the columns of a run's row that can change, its number first."""
    changing: Row = _CHANGING(row)
    return changing


def record_of(row: Row) -> Record:
    """Return the record of a row. Raises KeyError for a kind that we never wrote."""
    seq, kind, step, at_ms, body, blobs, check, step_kind, epoch, took_ms = row
    return Record(
        seq,
        _KINDS[kind],
        step,
        at_ms,
        body,
        digests_of(blobs),
        check,
        _STEP_KINDS[step_kind],
        epoch,
        took_ms,
    )


def row_of_record(run: int, record: Record) -> Row:
    """Return the row of a record; `run` is the number of its run."""
    return (
        run,
        record.seq,
        _WORDS[record.kind],
        record.step,
        record.at_ms,
        record.body,
        joined(record.blobs) if record.blobs else None,
        record.check,
        record.step_kind,
        record.epoch,
        record.took_ms,
    )


def digests_of(joined: bytes | None) -> tuple[bytes, ...]:
    """Split digests that were stored as one value."""
    if not joined:
        return ()
    return tuple(joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES))


def joined(digests: tuple[bytes, ...]) -> bytes | None:
    """Join digests for storing."""
    return b"".join(digests) or None


def signal_of(run: str, row: Row) -> Signal:
    """Return the signal of a row."""
    number, name, id_, body, at_ms, taken = row
    return Signal(run=run, number=number, name=name, id=id_, body=body, at_ms=at_ms, taken=taken)


def item_of(row: Row) -> Item:
    """Return the inbox item of a row."""
    return Item(
        id=row[0],
        run=row[1],
        kind=ItemKind(row[2]),
        step=row[3],
        digest=row[4],
        body=row[5],
        to=row[6],
        deadline_ms=row[7],
        opened_ms=row[8],
        state=ItemState(row[9]),
        answer=row[10],
        by=row[11],
        answered_ms=row[12],
    )


def row_of_item(item: Item) -> Row:
    """Return the row of an inbox item."""
    return (
        item.id,
        item.run,
        item.kind.value,
        item.step,
        item.digest,
        item.body,
        item.to,
        item.deadline_ms,
        item.opened_ms,
        item.state.value,
        item.answer,
        item.by,
        item.answered_ms,
    )


def key_of(row: Row) -> Key:
    """Return the business key of a row."""
    return Key(
        key=row[0],
        action=row[1],
        fingerprint=row[2],
        run=row[3],
        resumable=bool(row[4]),
        state=KeyState(row[5]),
        generation=row[6],
        body=row[7],
        blobs=digests_of(row[8]),
        changed_ms=row[9],
    )


def row_of_key(key: Key) -> Row:
    """Return the row of a business key."""
    return (
        key.key,
        key.action,
        key.fingerprint,
        key.run,
        key.resumable,
        key.state.value,
        key.generation,
        key.body,
        joined(key.blobs) if key.blobs else None,
        key.changed_ms,
    )


def row_of_session(new: NewSession, now_ms: int, boot_ms: int, boot_id: str) -> Row:
    """Return the row of a new session, up to when it was renewed."""
    agents = msgspec.json.encode(new.agents).decode()
    said = (new.id, new.host, new.pid, new.code, new.lease_ms, agents, new.keeper)
    return (*said, now_ms, now_ms, boot_ms, boot_id)


def session_of(row: Row, boot_id: str, boot_ms: int) -> Session:
    """Return the session of a row, without its fate; a lease from another boot has run out."""
    id_, host, pid, code, lease_ms, agents, keeper = row[:7]
    started_ms, renewed_ms, renewed_boot, boot, ended_ms, cause, evidence, counts = row[7:]
    return Session(
        id=id_,
        host=host,
        pid=pid,
        code=code,
        lease_ms=lease_ms,
        agents=_AGENTS.decode(agents),
        keeper=keeper,
        started_ms=started_ms,
        renewed_ms=renewed_ms,
        # A boot clock starts over: numbers of another boot cannot be compared, and no process survives one.
        left_ms=max(0, renewed_boot + lease_ms - boot_ms) if boot == boot_id else 0,
        ended_ms=ended_ms,
        cause=Cause(cause) if cause else None,
        evidence=_EVIDENCE.decode(evidence) if evidence else None,
        counts=counts,
    )


def entry_of(row: Row) -> LogEntry:
    """Return the recovery log entry of a row."""
    seq, kind, run, session, at_ms, body, check = row
    return LogEntry(seq, Happening(kind), run, session, at_ms, body, check)


def row_of_entry(entry: LogEntry) -> Row:
    """Return the row of a recovery log entry."""
    return entry.seq, entry.kind.value, entry.run, entry.session, entry.at_ms, entry.body, entry.check


def row_of_evidence(evidence: Evidence | None) -> bytes | None:
    """Return the stored form of the evidence of a session's end."""
    return msgspec.json.encode(evidence) if evidence is not None else None


def counter_of(row: Row) -> tuple[Series, int]:
    """Return the counter of a row: its name with its labels, and its value."""
    name, labels, value = row
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}")
    _LABELS.decode(labels)
    return (name, labels), value


def document_of(row: Row) -> Document:
    """Return the document of a row."""
    name, version, body, changed_ms = row
    return Document(name=name, version=version, body=body, changed_ms=changed_ms)


def row_of_document(document: Document) -> Row:
    """Return the row of a document."""
    return document.name, document.version, document.body, document.changed_ms
