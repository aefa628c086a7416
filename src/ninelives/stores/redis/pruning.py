"""Removing what is no longer needed, run by run. If we are killed half-way, the next call continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from ninelives.core.journal import chain
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind
from ninelives.core.rules import counting, dedup
from ninelives.store import Pruned
from ninelives.stores.redis import encoding, lookups, recovery_log
from ninelives.stores.redis.maintenance import run_ids
from ninelives.stores.redis.run_rows import entries, move_entries, peek_runs, read_runs, save_run
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.tables import MARK, Tables
from ninelives.stores.redis.transaction import PART, Transaction
from ninelives.stores.shared.maintenance import Limits, is_old_session

T = TypeVar("T")
_DAY_MS = 86_400_000


def prune(pool: Pool, limits: Limits, grace_ms: int) -> Pruned:
    """Remove journals, turn keys into tombstones, remove blobs; see `Maintenance.prune`."""
    journals = records = keys = forgotten = swept = 0
    names, forget_before_ms = pool.names, limits.forget_before_ms
    for run in _ended(pool, names.ended, limits.latest):
        removed, buried = _write(pool, partial(_clear, run_id=run, limits=limits))
        journals += removed > 0
        records += removed
        keys += buried
    for part in pool.read(lambda tx: list(tx.scan(b"SSCAN", names.long))):
        records += sum(_write(pool, partial(_shorten, run_id=run.decode())) for run in part)
    for run in _ended(pool, names.pruned, forget_before_ms):
        forgotten += _write(pool, partial(_forget, run_id=run, before_ms=forget_before_ms))
    spared: set[bytes] | None = None
    for part in pool.read(lambda tx: list(tx.scan(b"HSCAN", names.blobs))):
        garbage = pool.read(partial(_garbage, digests=part[::2], grace_ms=grace_ms))
        if garbage and spared is None:
            spared = pool.read(_needed)
        wanted = [digest for digest in garbage if digest not in (spared or ())]
        swept += _write(pool, partial(_sweep, digests=wanted, grace_ms=grace_ms)) if wanted else 0
    for part in pool.read(lambda tx: list(tx.scan(b"HSCAN", names.writers))):
        _write(pool, partial(_sweep_writers, writers=dict(zip(part[::2], part[1::2], strict=True))))
    entries = _emptied(pool, partial(recovery_log.cut, before_ms=limits.log_before_ms))
    sessions = _drop_sessions(pool, limits.log_before_ms)
    return Pruned(
        journals=journals,
        records=records,
        blobs=swept,
        keys=keys,
        runs=forgotten,
        entries=entries,
        sessions=sessions,
    )


def _emptied(pool: Pool, remove: Callable[[Transaction], int]) -> int:
    total = 0
    while gone := _write(pool, remove):
        total += gone
    return total


def _drop_sessions(pool: Pool, before_ms: int) -> int:
    """Remove the rows of old sessions that no run names."""
    names = pool.names
    dropped = 0
    for part in pool.read(lambda tx: list(tx.scan(b"HSCAN", names.sessions))) if before_ms else ():
        dropped += _write(pool, partial(_drop_some, rows=part[1::2], before_ms=before_ms))
    return dropped


def _drop_some(tx: Transaction, rows: list[bytes], before_ms: int) -> int:
    old = [
        one for raw in rows if is_old_session(one := encoding.session_of(raw, tx.boot_ms)[0], before_ms, ())
    ]
    # Only when there is an old one: this reads the rows of all runs.
    named = _named(tx) if old else set()
    gone = [one for one in old if one.id not in named]
    for one in gone:
        tx.do(b"HDEL", tx.names.sessions, one.id.encode())
    return len(gone)


def _named(tx: Transaction) -> set[str]:
    """Return the sessions that runs name as the ones that left them."""
    ids = run_ids(tx)
    parts = (ids[start : start + PART] for start in range(0, len(ids), PART))
    found = (run.left_by for part in parts for run in peek_runs(tx, part).values())
    return {name for name in found if name is not None}


def _write(pool: Pool, work: Callable[[Transaction], T]) -> T:
    """Write something that frees memory, even if the server has none left."""

    def freeing(tx: Transaction) -> T:
        tx.frees = True
        return work(tx)

    return pool.write(freeing)


def _ended(pool: Pool, index: bytes, before_ms: int) -> Iterator[str]:
    """Yield the runs that ended before a moment."""
    # All of them first: an agent's runs may stay in the index, and what goes moves the others.
    found: list[bytes] = []
    while True:
        command = (b"ZRANGEBYSCORE", index, b"-inf", f"({before_ms}", b"LIMIT", len(found), PART)
        (part,) = pool.read(lambda tx, command=command: tx.ask([command]))  # type: ignore[misc]
        found += part
        if len(part) < PART:
            yield from (run.decode() for run in found)
            return


def _clear(tx: Transaction, run_id: str, limits: Limits) -> tuple[int, int]:
    """Clear the journal of an ended run; its row keeps head and length."""
    run = read_runs(tx, [run_id]).get(run_id)
    # The index was read outside this transaction: the run may have been retried since.
    if run is None or not limits.may_clear(run) or run.base == run.length:
        return 0, 0
    names, tables = tx.names, Tables(tx)
    tables.keys.fetch(list(tables.holds[run_id]))
    buried = 0
    for name in tables.holds[run_id]:
        key = tables.keys.get(name)
        if key is not None and key.run == run_id and key.state is KeyState.SETTLED:
            tx.do(b"HSET", names.keys, name.encode(), encoding.key_bytes(dedup.pruned(key)))
            buried += 1
    for item in tables.items_of[run_id]:
        tx.do(b"HDEL", names.items, item.encode())
        tx.do(b"ZREM", names.all_items, item.encode())
        tx.do(b"ZREM", names.inbox, item.encode())
    tx.do(b"FORGET", names.refers(run_id), b"", names.referred)
    # Its keys stay, as tombstones, and so does the set that finds them: an export takes them along.
    for key_of in (names.journal, names.signals, names.sent, names.items_of, names.waits):
        tx.do(b"DEL", key_of(run_id))
    save_run(tx, run, replace(run, base=run.length, base_check=run.head))
    return run.length - run.base, buried


def _shorten(tx: Transaction, run_id: str) -> int:
    """Drop the turns before the previous one of a live run; return the number of records removed."""
    run = read_runs(tx, [run_id]).get(run_id)
    if run is None or run.state.is_final or run.turn_seq <= run.base:
        return 0
    (found,) = tx.ask([(b"LRANGE", tx.names.journal(run_id), 0, run.turn_seq - run.base - 1)])
    records = [encoding.record_of(raw, run_id) for raw in found]
    for seq, record in enumerate(records, run.base):
        # The list is cut by position: with a gap before it, the turn itself would be cut off.
        if record.seq != seq:
            # Compared here: another process may have shortened it between the two reads.
            read_runs(tx, [run_id])
            raise chain.missing(run_id, seq)
    previous = max((one.seq for one in records if one.kind is Kind.TURN), default=run.base)
    if previous <= run.base:
        return 0
    tx.do(b"LTRIM", tx.names.journal(run_id), previous - run.base, -1)
    before = records[previous - run.base - 1].check
    save_run(tx, run, replace(run, base=previous, base_check=before))
    return previous - run.base


def _forget(tx: Transaction, run_id: str, before_ms: int) -> int:
    run = read_runs(tx, [run_id]).get(run_id)
    if run is None or not run.state.is_final or run.changed_ms >= before_ms or run.base != run.length:
        return 0
    move_entries(tx, entries(tx.names, run), [])
    tx.do(b"DEL", tx.names.run(run_id))
    lookups.add_counts(tx, counting.forgotten([(run.agent, run.state.value)]))
    tx.do(b"ZREM", tx.names.changed, run_id.encode())
    if run.parent is not None:
        born, siblings = tx.names.children(run.parent), Tables(tx).children[run.parent]
        # Without children only the mark would stay, for every parent that ever was.
        if set(siblings) <= {run_id}:
            tx.do(b"DEL", born)
        else:
            tx.do(b"HDEL", born, run_id.encode())
            tx.do(b"HSET", born, MARK, tx.mark)
    return 1


def _needed(tx: Transaction) -> set[bytes]:
    """Return all blobs that runs refer to, by their own sets: a count may be lost."""
    ids = run_ids(tx)
    needed: set[bytes] = set()
    for start in range(0, len(ids), PART):
        found = tx.ask([(b"SMEMBERS", tx.names.refers(run)) for run in ids[start : start + PART]])
        needed.update(digest for digests in found for digest in digests)
    return needed


def _garbage(tx: Transaction, digests: list[bytes], grace_ms: int) -> list[bytes]:
    """Return which of these blobs are old and counted as unused."""
    names = tx.names
    found = []
    rows = tx.fields([(key, digest) for digest in digests for key in (names.blobs, names.referred)])
    for index, digest in enumerate(digests):
        put_ms, count = rows[2 * index : 2 * index + 2]
        # The grace covers blobs that were put, and whose commit is still on its way.
        if put_ms is not None and count is None and int(put_ms) < tx.now_ms - grace_ms:
            found.append(digest)
    return found


def _sweep(tx: Transaction, digests: list[bytes], grace_ms: int) -> int:
    # Asked again: the commit that refers to one of them may have arrived since.
    garbage = _garbage(tx, digests, grace_ms)
    for digest in garbage:
        tx.do(b"HDEL", tx.names.blobs, digest)
        tx.do(b"DEL", tx.names.blob(digest))
    return len(garbage)


def _sweep_writers(tx: Transaction, writers: dict[bytes, bytes]) -> None:
    for name, said in writers.items():
        # A lost answer is asked for within a minute (`doubt_seconds`): after a day, no process wants to know.
        if int(said.rpartition(b" ")[2]) < tx.now_ms - _DAY_MS:
            tx.do(b"HDEL", tx.names.writers, name)
