"""The recovery log: a list of chained entries; length and head are in a field that appends compare."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.redis import encoding
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.rows import decoding

_HEAD = b"log"
_PART = 500


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    if not new:
        return
    # Compared at the write: two processes that append at once would chain onto the same entry.
    (raw,) = tx.fields([(tx.names.store, _HEAD)])
    length, head = _head_of(raw)
    sealed = recovery_log.seal(length, head, tx.now_ms, new)
    for entry in sealed:
        tx.do(b"RPUSH", tx.names.log, encoding.entry_bytes(entry))
        if entry.run:
            tx.do(b"RPUSH", tx.names.log_of(entry.run), entry.seq)
    tx.do(b"HSET", tx.names.store, _HEAD, b"%d %b" % (length + len(sealed), sealed[-1].check))


def _head_of(raw: bytes | None) -> tuple[int, bytes]:
    if raw is None:
        return 0, recovery_log.START
    with decoding("the recovery log's head"):
        length, _, head = raw.partition(b" ")
        return int(length), head


def read(tx: Transaction, run: str | None, below: int, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    if run is None:
        (length,) = tx.ask([(b"LLEN", tx.names.log)])
        end = max(0, min(below, length))
        seqs = list(range(end - 1, max(-1, end - 1 - limit), -1))
    else:
        (found,) = tx.ask([(b"LRANGE", tx.names.log_of(run), 0, -1)])
        seqs = [seq for seq in map(int, reversed(found)) if seq < below][:limit]
    wanted = sorted({one for seq in seqs for one in (seq, seq - 1) if one >= 0})
    raw = dict(zip(wanted, tx.ask([(b"LINDEX", tx.names.log, seq) for seq in wanted]), strict=True))
    entries = {seq: encoding.entry_of(one or b"") for seq, one in raw.items()}
    return [
        recovery_log.verify(entries[seq - 1].check if seq else recovery_log.START, entries[seq])
        for seq in seqs
    ]


def verify(tx: Transaction) -> None:
    """Check the whole log. Raises Corrupt."""
    raw, length = tx.ask([(b"HGET", tx.names.store, _HEAD), (b"LLEN", tx.names.log)])
    known, head = _head_of(raw)
    entries: list[LogEntry] = []
    for start in range(0, length, _PART):
        (part,) = tx.ask([(b"LRANGE", tx.names.log, start, start + _PART - 1)])
        entries += [encoding.entry_of(one) for one in part]
    # Ignore entries that were added after we read the head.
    recovery_log.verify_all(entries[:known] if len(entries) > known else entries, length=known, head=head)
