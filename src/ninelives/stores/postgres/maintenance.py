"""What operators do: measure, verify, prune. In small transactions, so that writers are not held up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ninelives.core.errors import Corrupt, StoreError, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.run import State
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.postgres import recovery_log
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.postgres.transaction import Transaction, get_run
from ninelives.stores.shared import rows


def measure(tx: Transaction, schema: str) -> Stats:
    """Count what is in the store."""
    counts = dict.fromkeys(State, 0) | {State(state): count for state, count in tx.all("count_runs")}
    (row,) = tx.all("count_others", (schema,))
    records, record_bytes, count_blobs, blob_bytes, keys, open_items, sessions, disk_bytes = row
    return Stats(
        runs=counts,
        records=records,
        record_bytes=record_bytes,
        blobs=count_blobs,
        blob_bytes=blob_bytes,
        keys=keys,
        open_items=open_items,
        sessions=sessions,
        disk_bytes=disk_bytes,
    )


def verify(pool: Pool, progress: Progress | None) -> list[Fault]:
    """Read every chain, every row and every blob; collect all faults, not only the first."""
    found = _guarded(None, lambda: pool.read(_structure))
    ids = pool.read(lambda tx: [run for (run,) in tx.all("run_ids")])
    for done, run in enumerate(ids, 1):
        found += _guarded(run, partial(pool.read, partial(_run_faults, run_id=run)))
        if progress is not None:
            progress(done, len(ids))
    for name, read in _READERS:
        found += _guarded(None, partial(pool.read, partial(_row_faults, name=name, read=read)))
    found += _guarded(None, lambda: pool.read(_log_faults))
    for (digest,) in pool.read(lambda tx: tx.all("blob_digests")):
        found += _guarded(None, partial(pool.read, partial(_blob_faults, digest=digest)))
    return found


_READERS: tuple[tuple[str, Callable[[rows.Row], object]], ...] = (
    ("all_keys", rows.key_of),
    ("all_items", rows.item_of),
    ("all_signals", lambda row: rows.signal_of("", row)),
    ("all_sessions", lambda row: rows.session_of(row, "", 0)),
)


def _guarded(run: str | None, check: Callable[[], list[Fault]]) -> list[Fault]:
    try:
        return check()
    except UnknownRun:
        return []  # pruned meanwhile
    except StoreError as error:
        return [Fault(run, error.what)]
    except (KeyError, ValueError, TypeError) as error:
        return [Fault(run, f"a row holds a value that is never written: {error}")]


def _structure(tx: Transaction) -> list[Fault]:
    found = [
        Fault(None, f"records of a run without a row (number {number})")
        for (number,) in tx.all("stray_records")
    ]
    for run, digest in tx.all("missing_blobs"):
        found.append(Fault(run, f"blob {digest.hex()} is missing"))
    for key, run, state in tx.all("stray_keys"):
        found.append(Fault(run, f"key {key!r} is {state} by a run that has ended or does not exist"))
    return found


def _run_faults(tx: Transaction, run_id: str) -> list[Fault]:
    run = get_run(tx, run_id)
    found = tuple(rows.record_of(row) for row in tx.all("read_records", (run.number, run.base)))
    chain.verify(run.id, run.base_check, run.base, found, length=run.length, head=run.head)
    if (run.session is not None) != (run.state is State.RUNNING):
        raise Corrupt(f"the run is {run.state} and its session is {run.session!r}", run=run.id)
    return []


def _row_faults(tx: Transaction, name: str, read: Callable[[rows.Row], object]) -> list[Fault]:
    found = []
    for row in tx.all(name):
        try:
            read(row)
        except (ValueError, KeyError, TypeError) as error:
            found.append(Fault(None, f"a row of {name.removeprefix('all_')} ({row[0]!r}): {error}"))
    return found


def _log_faults(tx: Transaction) -> list[Fault]:
    recovery_log.verify(tx)
    return []


def _blob_faults(tx: Transaction, digest: bytes) -> list[Fault]:
    for _, packed in tx.all("read_blobs", ([digest],)):
        blobs.unpack(digest, packed)
    return []


def prune(pool: Pool, ended_before_ms: int, forget_before_ms: int, grace_ms: int) -> Pruned:
    """Remove journals, turn keys into tombstones, remove blobs; see `Maintenance.prune`."""
    journals = records = keys = forgotten = swept = 0
    while cleared := pool.write(lambda tx: _clear(tx, max(ended_before_ms, forget_before_ms))):
        journals += len(cleared)
        records += sum(removed for removed, _ in cleared)
        keys += sum(buried for _, buried in cleared)
    after: int | None = 0
    while after is not None:
        after, removed = pool.write(partial(_shorten, after=after))
        records += removed
    while gone := pool.write(lambda tx: _forget(tx, forget_before_ms)):
        forgotten += gone
    while gone := pool.write(lambda tx: _counted(tx, "sweep_blobs", (tx.now_ms - grace_ms,))):
        swept += gone
    pool.write(lambda tx: tx.do("sweep_writers"))
    return Pruned(journals=journals, records=records, blobs=swept, keys=keys, runs=forgotten)


def _counted(tx: Transaction, name: str, values: tuple[object, ...]) -> int:
    ((count,),) = tx.all(name, values)
    tx.is_changed = tx.is_changed or bool(count)
    return int(count)


def _clear(tx: Transaction, before_ms: int) -> list[tuple[int, int]]:
    """Clear the journals of some ended runs; their rows keep head and length."""
    done = []
    for number, run, length, head in tx.all("ended_runs", (before_ms,)):
        removed = _counted(tx, "delete_records", (number, length))
        buried = _counted(tx, "bury_keys", (run,))
        for statement, value in (("delete_signals", number), ("delete_items", run), ("forget_blobs", number)):
            tx.do(statement, (value,))
        tx.do("rebase_run", (length, head, number))
        done.append((removed, buried))
    return done


def _shorten(tx: Transaction, after: int) -> tuple[int | None, int]:
    """Drop the turns before the previous one of some live runs; return where to continue, or None."""
    removed = 0
    batch = tx.all("long_runs", (after,))
    for number, base, turn_seq in batch:
        ((previous,),) = tx.all("previous_turn", (number, turn_seq))
        if previous is None or previous <= base:
            continue
        ((_, check),) = tx.all("read_checks", ([number], [previous - 1]))
        tx.do("rebase_run", (previous, check, number))
        removed += _counted(tx, "delete_records", (number, previous))
    return (batch[-1][0] if batch else None), removed


def _forget(tx: Transaction, before_ms: int) -> int:
    batch = tx.all("forgettable_runs", (before_ms,))
    tx.many("forget_run", batch)
    return len(batch)
