"""What operators do: measure, verify, prune. In small parts, so that writers are not held up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ninelives.core.journal import chain
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.run import Record, RunRow
from ninelives.core.rules import counting
from ninelives.core.values.blobs import DIGEST_BYTES
from ninelives.store import Fault, Pruned, Stats
from ninelives.stores.postgres import lookups, recovery_log
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.postgres.transaction import Transaction, get_run
from ninelives.stores.shared import maintenance, rows, walk
from ninelives.stores.shared.maintenance import AT_ONCE, Limits
from ninelives.stores.shared.walk import KeyedRows

Page = tuple[list[Fault], int, str | None]
_REFERENCES = KeyedRows("blob_references", (0, 1), (b"", -1))


def measure(tx: Transaction, schema: str) -> Stats:
    """Count what is in the store."""
    return maintenance.stats_of(tx.all("count_runs"), tx.all("count_others", (schema,))[0])


def _journal(tx: Transaction, run_id: str) -> tuple[RunRow, tuple[Record, ...]]:
    run = get_run(tx, run_id)
    found = tx.all("read_records", (run.number, run.base))
    return run, tuple(rows.record_of(row) for row in found)


def _beside(tx: Transaction, run: RunRow, keys: list[str]) -> walk.Beside:
    owners = [name for name in (run.session, run.left_by) if name]
    return walk.Beside(
        keys=lookups.read_keys(tx, keys),
        items={item: ItemState(state) for item, state in tx.all("item_states", (run.id,))},
        signals=walk.signal_numbers(tx.all("signal_numbers", (run.number,))),
        sessions={name for (name,) in tx.all("known_sessions", (owners,))},
        blobs={digest for (digest,) in tx.all("blobs_of_run", (run.number,))},
    )


def _rows(
    table: KeyedRows,
    orphans: Callable[[Transaction, tuple[Any, ...], tuple[Any, ...]], list[Fault]] | None = None,
    width: int | None = None,
) -> walk.Section:
    """Make a section of rows; `orphans` are the faults between two keys, `width` is a row without its key."""
    read = walk.READERS[table.name]

    def page(tx: Transaction, after: str, limit: int) -> Page:
        before = table.values(after)
        found = tx.all(table.name, (*before, limit))
        faults = list(walk.row_faults(table.name, found, lambda row: read(row[:width])))
        if orphans is not None and found:
            faults += orphans(tx, before, tuple(found[-1][column] for column in table.at))
        return faults, len(found), table.position(before, found, limit)

    return walk.pages(page)


def _stray_keys(tx: Transaction, before: tuple[Any, ...], last: tuple[Any, ...]) -> list[Fault]:
    return [walk.stray_key(*row) for row in tx.all("stray_keys", (*before, *last))]


def _references(tx: Transaction, after: str, limit: int) -> Page:
    before = _REFERENCES.values(after)
    found = tx.all("blob_references", (*before, limit))
    missing = [
        walk.missing_blob(run, digest)
        for digest, _, run, is_there in found
        if run is not None and not is_there
    ]
    return missing, len(found), _REFERENCES.position(before, found, limit)


def _counters(tx: Transaction) -> list[Fault]:
    name = "all_counters"
    return list(walk.row_faults(name, tx.all(name), walk.READERS[name]))


def _digests(tx: Transaction, after: str, limit: int) -> tuple[list[bytes], str | None]:
    found = [bytes(digest) for (digest,) in tx.all("blob_digests", (bytes.fromhex(after), limit))]
    return found, walk.last_of(found, limit, bytes.hex)


def _packed(tx: Transaction, digest: bytes) -> bytes | None:
    return next((packed for _, packed in tx.all("read_blobs", ([digest],))), None)


_BY_TEXT = partial(KeyedRows, at=(0,), start=("",))
SECTIONS: walk.Sections = {
    "stray records": walk.STRAY_RECORDS,
    "runs": walk.runs_by_sql(_journal, _beside),
    "keys": _rows(_BY_TEXT("all_keys"), _stray_keys),
    "items": _rows(_BY_TEXT("all_items")),
    "signals": _rows(KeyedRows("all_signals", (6, 0), (-1, -1)), width=6),
    "sessions": _rows(_BY_TEXT("all_sessions")),
    "documents": _rows(_BY_TEXT("all_documents")),
    "counters": walk.whole(_counters),
    "references": walk.pages(_references),
    "log": walk.whole(recovery_log.verify),
    "blobs": walk.Blobs(listed=_digests, packed=_packed),
}
"""How the tables are verified, in order."""


def prune(pool: Pool, limits: Limits, grace_ms: int) -> Pruned:
    """Remove what is old; see `Maintenance.prune`."""
    removal = maintenance.Removal(
        clear=partial(_clear, limits=limits),
        shorten=_shorten,
        forget=partial(_forget, before_ms=limits.forget_before_ms),
        spared=lambda: pool.read(partial(_spared, grace_ms=grace_ms)),
        sweep=lambda tx, spared: _counted(tx, "sweep_blobs", (tx.now_ms - grace_ms, spared)),
        cut=partial(recovery_log.cut, before_ms=limits.log_before_ms),
        drop_sessions=lambda tx: _counted(tx, "drop_sessions", (limits.log_before_ms, AT_ONCE)),
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


def _spared(tx: Transaction, grace_ms: int) -> list[bytes]:
    if not tx.all("has_old_blob", (tx.now_ms - grace_ms,)):
        return []
    return [bytes(digest) for (digest,) in tx.all("lost_references", (DIGEST_BYTES,))]


def _clear(tx: Transaction, limits: Limits) -> list[tuple[int, int]]:
    """Clear the journals of some ended runs; their rows keep head and length."""
    done = []
    own = msgspec.json.encode(limits.of_agents).decode()
    for number, run, length, head in tx.all("ended_runs", (limits.latest, own, limits.of_others)):
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
    tx.many("forget_run", [(number,) for number, _, _ in batch])
    lookups.add_counts(tx, counting.forgotten((agent, state) for _, agent, state in batch))
    return len(batch)
