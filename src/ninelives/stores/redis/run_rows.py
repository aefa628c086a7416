"""Runs' rows: reading and writing them, and the indexes by which claims, lists and prune find them.

A run's index entries follow from its row only. So a change of the row changes those entries that differ
before and after. Appends change no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.rules import validation
from ninelives.stores.redis import encoding
from ninelives.stores.redis.server.key_names import Names, lane_field, lane_member
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.rows import texts

Entry = tuple[str, bytes, bytes, int]
"""An entry of an index: its kind, its key, its member, its score."""

_WAITING = (State.PENDING, State.CHECKPOINTED)


def read_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist, by name; a write requires that they are unchanged.

    Raises Corrupt.
    """
    wanted = list(dict.fromkeys(texts(names)))
    found = tx.fields([(tx.names.run(name), part) for name in wanted for part in (b"r", b"t")])
    runs = (encoding.run_of(name, *found[2 * n : 2 * n + 2]) for n, name in enumerate(wanted))
    return {name: run for name, run in zip(wanted, runs, strict=True) if run is not None}


def peek_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist, without comparing them later; damaged ones are left out."""
    found = tx.ask([(b"HMGET", tx.names.run(name), b"r", b"t") for name in names])
    return runs_in(zip(names, found, strict=True))


def runs_in(found: Iterable[tuple[str, Sequence[Any]]]) -> dict[str, RunRow]:
    """Return the runs, given names and the parts of their rows; damaged ones are left out."""
    runs = {}
    for name, (rest, tail) in found:
        with suppress(Corrupt):
            run = encoding.run_of(name, rest or None, tail or None)
            if run is not None:
                runs[name] = run
    return runs


def get_run(tx: Transaction, run: str) -> RunRow:
    """Return a run's row. Raises UnknownRun."""
    found = read_runs(tx, [run])
    if run not in found:
        raise validation.unknown_run(run)
    return found[run]


def save_run(tx: Transaction, before: RunRow | None, after: RunRow) -> None:
    """Write what has changed of a run's row and of its index entries."""
    name, rest = tx.names.run(after.id), encoding.rest_of(after)
    if before is None or encoding.rest_of(before) != rest:
        tx.do(b"HSET", name, b"r", rest)
    tx.do(b"HSET", name, b"t", encoding.tail_of(after))
    tx.do(b"MARK", tx.names.changed, after.id.encode())
    move_entries(tx, entries(tx.names, before) if before is not None else [], entries(tx.names, after))


def move_entries(tx: Transaction, old: Sequence[Entry], new: Sequence[Entry]) -> None:
    """Remove index entries that no longer apply, and add new ones."""
    for entry in old:
        if entry not in new:
            _take_out(tx, entry)
    for entry in new:
        if entry not in old:
            _put_in(tx, entry)


def entries(names: Names, run: RunRow) -> list[Entry]:
    """Return a run's index entries."""
    id_ = run.id.encode()
    found: list[Entry] = [("runs", names.in_state(run.state), id_, run.number)]
    found += [("runs", names.labelled(*label), id_, run.number) for label in run.labels.items()]
    if run.session is not None:
        found.append(("set", names.owned(run.session), id_, 0))
    # The same condition as `is_claimable`, without the time: a lane is ordered by when its runs fall due.
    if run.state in _WAITING and run.due_ms is not None and not run.paused:
        found.append(("lane", names.lane_of(run), lane_member(run), run.due_ms))
        found.append(("field", names.lanes_of(run), lane_field(run), 0))
    if run.state.is_final:
        is_pruned = run.base == run.length
        found.append(("runs", names.pruned if is_pruned else names.ended, id_, run.changed_ms))
    elif run.turn >= 2:
        found.append(("set", names.long, id_, 0))
    return found


def _take_out(tx: Transaction, entry: Entry) -> None:
    kind, key, member, _ = entry
    if kind == "set":
        tx.do(b"SREM", key, member)
    elif kind == "field":
        # Decided in the script: another run may enter the lane between our read and the write.
        tx.do(b"LESS", key, member, _lane_named(tx, key, member))
    else:
        tx.do(b"ZREM", key, member)


def _put_in(tx: Transaction, entry: Entry) -> None:
    kind, key, member, score = entry
    if kind == "set":
        tx.do(b"SADD", key, member)
    elif kind == "field":
        tx.do(b"HSET", key, member, b"1")
    else:
        tx.do(b"ZADD", key, score, member)


def _lane_named(tx: Transaction, lanes: bytes, field: bytes) -> bytes:
    tag = tx.names.tag
    return tag + b"lane:" + lanes.removeprefix(tag + b"lanes:") + b"\0" + field


def append_records(tx: Transaction, run: str, records: Sequence[Record]) -> None:
    """Append sealed records to a run's journal, and store which blobs they refer to."""
    journal = tx.names.journal(run)
    for record in records:
        tx.do(b"RPUSH", journal, encoding.record_bytes(record))
    refer(tx, run, [digest for record in records for digest in record.blobs])


def refer(tx: Transaction, run: str, digests: Iterable[bytes]) -> None:
    """Keep blobs, which must exist, alive for as long as a run's journal."""
    for digest in dict.fromkeys(digests):
        # A sweep may run at this moment: the commit must not refer to a blob that is gone.
        tx.require(tx.names.blobs, digest)
        tx.do(b"REFER", tx.names.refers(run), digest, tx.names.referred)


def require_whole(run: RunRow, lost: bytes | None) -> None:
    """Raise Corrupt for a run that may lack acknowledged writes, until its owner has continued it."""
    # A longer run was carried on by its owner since: it had everything.
    if lost == b"%d" % run.length:
        raise Corrupt(
            "the server has lost acknowledged writes while this run was under way:"
            " what it did last may be forgotten",
            run=run.id,
            remedy="Check what it has done beyond its journal; then let it continue, or give it up",
        )
