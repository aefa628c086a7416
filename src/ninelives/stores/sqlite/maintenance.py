"""What operators do: measure, prune, and continue after a loss."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal import chain
from ninelives.core.model.run import RunRow
from ninelives.core.rules import counting, dedup
from ninelives.core.values.blobs import DIGEST_BYTES
from ninelives.store import Pruned, Stats
from ninelives.stores.shared import maintenance, rows
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.sqlite import checks, lookups, recovery_log
from ninelives.stores.sqlite.files import anchor, paths, schema, structure
from ninelives.stores.sqlite.files.connection import APPLICATION_ID, commits_in_file, connect, translated
from ninelives.stores.sqlite.files.database import Database, require_closed
from ninelives.stores.sqlite.files.paths import StorePaths
from ninelives.stores.sqlite.files.write_queue import held
from ninelives.stores.sqlite.transaction import (
    Transaction,
    delete_records,
    get_run,
    save_key,
    save_labels,
    save_runs,
)


def measure(tx: Transaction, where: StorePaths) -> Stats:
    """Count what is in the store."""
    files = (where.database, Path(f"{where.database}-wal"))  # as in `lookups.count_gauges`
    disk_bytes = sum(file.stat().st_size for file in files if file.exists())
    return maintenance.stats_of(tx.all("count_runs"), (*tx.all("count_others")[0], disk_bytes))


def prune(files: Database, limits: Limits, blobs_before_ms: int) -> Pruned:
    """Remove what is old; see `Maintenance.prune`."""
    # Rows that a damaged index hides would look unneeded or unreferenced, and would be removed.
    files.read(
        lambda tx: structure.require_sound(tx.cursor.connection, "runs", "records", "keys", "blob_runs")
    )
    removal = maintenance.Removal(
        clear=partial(_clear, limits=limits),
        shorten=_shorten,
        forget=partial(_forget, before_ms=limits.forget_before_ms),
        spared=lambda: files.read(partial(_spared, before_ms=blobs_before_ms)),
        sweep=partial(_sweep, before_ms=blobs_before_ms),
        cut=partial(recovery_log.cut, before_ms=limits.log_before_ms),
        drop_sessions=partial(_drop_sessions, before_ms=limits.log_before_ms),
    )
    return maintenance.prune(files.write, removal)


def _drop_sessions(tx: Transaction, before_ms: int) -> int:
    old = tx.all("old_sessions", (before_ms, maintenance.AT_ONCE)) if before_ms else []
    for row in old:
        tx.do("delete_session", (row[0],))
    return len(old)


def _clear(tx: Transaction, limits: Limits) -> list[tuple[int, int]]:
    """Clear the journals of some ended runs; their rows keep head and length."""
    done = []
    own = msgspec.json.encode(limits.of_agents).decode()
    for (name,) in tx.all("ended_runs", (limits.latest, own, limits.of_others)):
        run = get_run(tx, name)
        # All in one transaction with `_rebase`:
        # a journal without records whose row still counts them is damage.
        removed = delete_records(tx, run.number, run.length)
        buried = _bury(tx, name)
        for statement, value in (
            ("delete_signals", run.number),
            ("delete_items", name),
            ("forget_blobs", run.number),
        ):
            tx.do(statement, (value,))
        _rebase(tx, run, run.length, run.head)
        done.append((removed, buried))
    return done


def _bury(tx: Transaction, run: str) -> int:
    """Turn the settled keys of a run into tombstones."""
    found = [rows.key_of(row) for row in tx.all("settled_keys_of_run", (run,))]
    for key in found:
        save_key(tx, dedup.pruned(key))
    return len(found)


def _rebase(tx: Transaction, run: RunRow, base: int, check: bytes) -> None:
    after = replace(run, base=base, base_check=check)
    tx.do("rebase_run", (base, check, *checks.sealed_run(after)[-2:], run.number))


def _spared(tx: Transaction, before_ms: int) -> str:
    """Return the blobs to spare, as JSON for `old_blobs`."""
    found = tx.all("lost_references", (DIGEST_BYTES,)) if tx.all("old_blobs", (before_ms, "[]", 1)) else []
    return msgspec.json.encode([digest for (digest,) in found]).decode()


def _sweep(tx: Transaction, spared: str, before_ms: int) -> int:
    old = tx.all("old_blobs", (before_ms, spared, maintenance.AT_ONCE))
    for digest, _ in old:
        tx.do("delete_blob", (digest,))
    return len(old)


def _shorten(tx: Transaction, after: int) -> tuple[int | None, int]:
    """Drop the turns before the previous one of some live runs; return where to continue, or None."""
    removed = 0
    batch = tx.all("long_runs", (after,))
    for number, name in batch:
        run = get_run(tx, name)
        ((previous,),) = tx.all("previous_turn", (number, run.turn_seq))
        if previous is None or previous <= run.base:
            continue
        before = tx.one("read_check", (number, previous - 1))
        if before is None:
            raise chain.missing(name, previous - 1)
        _rebase(tx, run, previous, before[0])
        removed += delete_records(tx, number, previous)
    return (batch[-1][0] if batch else None), removed


def _forget(tx: Transaction, before_ms: int) -> int:
    batch = [get_run(tx, name) for (name,) in tx.all("forgettable_runs", (before_ms,))]
    for run in batch:
        save_labels(tx, run, is_gone=True)
        tx.do("forget_run", (run.number,))
    lookups.add_counts(tx, counting.forgotten((run.agent, run.state.value) for run in batch))
    return len(batch)


def accept_loss(path: str | Path, clock: Clock) -> list[str]:
    """Continue with a database that is behind its anchor, or has none, and accept that the rest is lost.

    Every unfinished run is paused, since it may have done what is no longer recorded: a person inspects and
    resumes each. Returns their ids. If it is killed half-way, call it again.
    Raises UsageError when nothing is lost, or while a process has the database open.
    """
    where = paths.locate(path)
    with held(where.live), translated():
        return _accept(where, clock)


def _accept(where: StorePaths, clock: Clock) -> list[str]:
    # A process that has it open would go on with runs that we pause, by what it has in memory.
    require_closed(where.database)
    paths.inspect(where, APPLICATION_ID)
    in_file = commits_in_file(where.database)
    connection = connect(where.database)
    try:
        schema.migrate(connection, schema.migrations())
        tx = Transaction(connection.cursor(), clock.now_ms())
        ((store_id, _, commits, *_),) = tx.all("read_store")
        if _agrees(where, store_id, commits, in_file):
            raise UsageError("nothing is lost: the anchor agrees", remedy="Open the store as it is")
        tx.cursor.execute("BEGIN IMMEDIATE")
        paused = pause_unfinished(tx)
        tx.cursor.execute("COMMIT")
        # CRASH: the runs are paused and the anchor still disagrees; the next call does the rest.
        anchor.create(where.anchor, store_id, commits, in_file or 0)
        return paused
    finally:
        connection.close()


def pause_unfinished(tx: Transaction) -> list[str]:
    """Pause every unfinished run; return those that were not paused before."""
    paused = []
    for (name,) in tx.all("unfinished_runs"):
        run = get_run(tx, name)
        if not run.paused:
            save_runs(tx, [replace(run, paused=True, news=run.news + 1, changed_ms=tx.now_ms)])
            paused.append(name)
    return paused


def _agrees(where: StorePaths, store_id: bytes, commits: int, in_file: int | None) -> bool:
    try:
        anchor.compare(where.anchor, store_id, commits, in_file)
    except (Corrupt, FileNotFoundError):
        return False
    return True
