"""What operators do: measure, verify, prune. In small transactions, so that writers are not held up."""

from __future__ import annotations

from functools import partial

from ninelives.core.journal import chain
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.run import Record, RunRow
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.postgres import lookups, recovery_log
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.postgres.transaction import Transaction, get_run
from ninelives.stores.shared import maintenance, rows


def measure(tx: Transaction, schema: str) -> Stats:
    """Count what is in the store."""
    return maintenance.stats_of(tx.all("count_runs"), tx.all("count_others", (schema,))[0])


def verify(pool: Pool, progress: Progress | None) -> list[Fault]:
    """Read every chain, every row and every blob; collect all faults, not only the first."""
    return maintenance.verify(pool.read, _CHECKS, progress)


def _journal(tx: Transaction, run_id: str) -> tuple[RunRow, tuple[Record, ...]]:
    run = get_run(tx, run_id)
    found = tx.all("read_records", (run.number, run.base))
    return run, tuple(rows.record_of(row) for row in found)


def _beside(tx: Transaction, run: RunRow, keys: list[str]) -> maintenance.Beside:
    owners = [name for name in (run.session, run.left_by) if name]
    return maintenance.Beside(
        keys=lookups.read_keys(tx, keys),
        items={item: ItemState(state) for item, state in tx.all("item_states", (run.id,))},
        signals=maintenance.signal_numbers(tx.all("signal_numbers", (run.number,))),
        sessions={name for (name,) in tx.all("known_sessions", (owners,))},
    )


def _row_faults(tx: Transaction) -> list[Fault]:
    readers = maintenance.READERS.items()
    return [fault for name, read in readers for fault in maintenance.row_faults(name, tx.all(name), read)]


def _packed(tx: Transaction, digest: bytes) -> bytes | None:
    return next((packed for _, packed in tx.all("read_blobs", ([digest],))), None)


_CHECKS = maintenance.Checks(
    structure=(maintenance.orphans,),
    run_ids=lambda tx: [run for (run,) in tx.all("run_ids")],
    journal=_journal,
    run=lambda _, run, records: maintenance.run_faults(run, records),
    beside=_beside,
    others=(_row_faults, recovery_log.verify),
    digests=lambda tx: [digest for (digest,) in tx.all("blob_digests")],
    packed=_packed,
)


def prune(pool: Pool, ended_before_ms: int, forget_before_ms: int, grace_ms: int) -> Pruned:
    """Remove what is old; see `Maintenance.prune`."""
    removal = maintenance.Removal(
        clear=partial(_clear, before_ms=max(ended_before_ms, forget_before_ms)),
        shorten=_shorten,
        forget=partial(_forget, before_ms=forget_before_ms),
        sweep=lambda tx: _counted(tx, "sweep_blobs", (tx.now_ms - grace_ms,)),
    )
    pruned = maintenance.prune(pool.write, removal)
    # One row for each connection that ever wrote: without this the table grows with every restart.
    pool.write(lambda tx: tx.do("sweep_writers"))
    return pruned


def _counted(tx: Transaction, name: str, values: tuple[object, ...]) -> int:
    ((count,),) = tx.all(name, values)
    # These statements answer with a count, so they are sent as queries: say that they have changed something.
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
    for number, name, base, turn_seq in batch:
        ((previous,),) = tx.all("previous_turn", (number, turn_seq))
        if previous is None or previous <= base:
            continue
        before = tx.all("read_checks", ([number], [previous - 1]))
        if not before:
            raise chain.missing(name, previous - 1)
        tx.do("rebase_run", (previous, before[0][1], number))
        removed += _counted(tx, "delete_records", (number, previous))
    return (batch[-1][0] if batch else None), removed


def _forget(tx: Transaction, before_ms: int) -> int:
    batch = tx.all("forgettable_runs", (before_ms,))
    tx.many("forget_run", batch)
    return len(batch)
