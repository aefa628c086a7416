"""The recovery log: a list of chained entries; length and head are in a field that appends compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from ninelives.core.errors import Corrupt, StoreUnavailable
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import read_runs
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import maintenance
from ninelives.stores.shared.rows import decoding

T = TypeVar("T")
_HEAD, _BASE = b"log", b"log-base"
_PART, _TRIES = 500, 20


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


def _base_of(raw: bytes | None) -> recovery_log.LogBase:
    return recovery_log.LogBase(*_head_of(raw)) if raw is not None else recovery_log.LogBase()


def _at_one_base(tx: Transaction, work: Callable[[recovery_log.LogBase], T]) -> T:
    """Read while the log begins at the same entry: positions in the list count from there."""
    for _ in range(_TRIES):
        (before,) = tx.ask([(b"HGET", tx.names.store, _BASE)])
        error: Corrupt | None = None
        try:
            found = work(_base_of(before))
        except Corrupt as caught:  # entries may have been removed while we read
            error = caught
        (after,) = tx.ask([(b"HGET", tx.names.store, _BASE)])
        if after == before:
            if error is not None:
                raise error
            return found
    raise StoreUnavailable("the recovery log is being pruned all the time", remedy="Try again")


def read(tx: Transaction, run: str | None, below: int, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    return _at_one_base(tx, lambda base: _read(tx, base, run, below, limit))


def _read(
    tx: Transaction, base: recovery_log.LogBase, run: str | None, below: int, limit: int
) -> list[LogEntry]:
    if run is None:
        (length,) = tx.ask([(b"LLEN", tx.names.log)])
        end = max(base.seq, min(below, base.seq + length))
        seqs = list(range(end - 1, max(base.seq - 1, end - 1 - limit), -1))
    else:
        (found,) = tx.ask([(b"LRANGE", tx.names.log_of(run), 0, -1)])
        seqs = [seq for seq in map(int, reversed(found)) if base.seq <= seq < below][:limit]
    wanted = sorted({one for seq in seqs for one in (seq, seq - 1) if one >= base.seq})
    raw = dict(
        zip(wanted, tx.ask([(b"LINDEX", tx.names.log, seq - base.seq) for seq in wanted]), strict=True)
    )
    entries = {seq: encoding.entry_of(one or b"") for seq, one in raw.items()}
    return [
        recovery_log.verify(entries[seq - 1].check if seq > base.seq else base.check, entries[seq])
        for seq in seqs
    ]


def verify(tx: Transaction) -> None:
    """Check the whole log. Raises Corrupt."""
    _at_one_base(tx, lambda base: _verify(tx, base))


def _verify(tx: Transaction, base: recovery_log.LogBase) -> None:
    raw, length = tx.ask([(b"HGET", tx.names.store, _HEAD), (b"LLEN", tx.names.log)])
    known, head = _head_of(raw)
    entries: list[LogEntry] = []
    for start in range(0, length, _PART):
        (part,) = tx.ask([(b"LRANGE", tx.names.log, start, start + _PART - 1)])
        entries += [encoding.entry_of(one) for one in part]
    # Ignore entries that were added after we read the head.
    recovery_log.verify_all(entries[: max(0, known - base.seq)], length=known, head=head, base=base)


def cut(tx: Transaction, before_ms: int) -> int:
    """Remove some of the oldest entries; return how many."""
    if not before_ms:
        return 0
    # Compared at the write, so that no other process has removed these; appends do not move them.
    (raw,) = tx.fields([(tx.names.store, _BASE)])
    base = _base_of(raw)
    (found,) = tx.ask([(b"LRANGE", tx.names.log, 0, maintenance.AT_ONCE - 1)])
    # Compared here too: entries removed between the two reads would look like damage.
    tx.fields([(tx.names.store, _BASE)])
    oldest = [encoding.entry_of(one) for one in found]
    if not oldest or oldest[0].at_ms >= before_ms:
        return 0
    gone = maintenance.old_entries(oldest, before_ms, read_runs(tx, [one.run for one in oldest if one.run]))
    if gone:
        after = recovery_log.base_after(base, gone)
        tx.do(b"HSET", tx.names.store, _BASE, b"%d %b" % after)
        tx.do(b"LTRIM", tx.names.log, len(gone), -1)
        for run, number in Counter(one.run for one in gone if one.run).items():
            tx.do(b"LTRIM", tx.names.log_of(run), number, -1)
    return len(gone)
