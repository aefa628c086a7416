"""What operators do: measure, verify, prune, and continue after a loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, StoreError, UnknownRun, UsageError
from ninelives.core.journal import chain
from ninelives.core.model.run import RunRow, State
from ninelives.core.rules import dedup
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.shared import rows
from ninelives.stores.sqlite import checks, halves, recovery_log
from ninelives.stores.sqlite.files import anchor, paths, schema, structure
from ninelives.stores.sqlite.files.connection import APPLICATION_ID, commits_in_file, connect, translated
from ninelives.stores.sqlite.files.database import Database, require_closed
from ninelives.stores.sqlite.files.paths import StorePaths
from ninelives.stores.sqlite.files.write_queue import WritersQueue
from ninelives.stores.sqlite.queries import SQL
from ninelives.stores.sqlite.transaction import (
    Transaction,
    delete_records,
    get_run,
    save_key,
    save_labels,
    save_runs,
)

Answer = TypeVar("Answer")


def measure(tx: Transaction, where: StorePaths) -> Stats:
    """Count what is in the store."""
    counts = dict.fromkeys(State, 0) | {State(state): count for state, count in tx.all("count_runs")}
    ((records, record_bytes, count_blobs, blob_bytes, keys, open_items, sessions),) = tx.all("count_others")
    files = (where.database, Path(f"{where.database}-wal"), where.anchor)
    return Stats(
        runs=counts,
        records=records,
        record_bytes=record_bytes,
        blobs=count_blobs,
        blob_bytes=blob_bytes,
        keys=keys,
        open_items=open_items,
        sessions=sessions,
        disk_bytes=sum(file.stat().st_size for file in files if file.exists()),
    )


class TableReader(Protocol):
    """What can be verified: a store's files, or a copy of them."""

    def require(self) -> None:
        """Check that this process may read."""

    def read(self, work: Callable[[Transaction], Answer]) -> Answer:
        """Run a reading transaction."""


def verify(files: TableReader, progress: Progress | None) -> list[Fault]:
    """Read every page, every chain and every blob; collect all faults, not only the first."""
    files.require()
    faults = _structure(files)
    try:
        ids = files.read(lambda tx: [run for (run,) in tx.all("run_ids")])
    except StoreError as error:
        return [*faults, Fault(None, error.what)]
    for done, run in enumerate(ids, 1):
        faults += _run_faults(files, run)
        if progress is not None:
            progress(done, len(ids))
    return faults + _row_faults(files) + _log_faults(files) + _blob_faults(files)


def _log_faults(files: TableReader) -> list[Fault]:
    try:
        files.read(recovery_log.verify)
    except StoreError as error:
        return [Fault(None, error.what)]
    return []


def _row_faults(files: TableReader) -> list[Fault]:
    """Read every row other than those of journals: keys, items, signals, sessions."""
    readers: tuple[tuple[str, Callable[[rows.Row], object]], ...] = (
        ("all_keys", rows.key_of),
        ("all_items", rows.item_of),
        ("all_signals", lambda row: rows.signal_of("", row)),
        ("all_sessions", lambda row: rows.session_of(row, "", 0)),
        ("blob_references", lambda row: row),
        ("all_waiters", lambda row: row),
        ("all_labels", lambda row: row),
    )
    faults = []
    for name, read in readers:
        verified = checks.VERIFIED[name]
        try:
            found = files.read(partial(_all, name=name))
        except StoreError as error:
            faults.append(Fault(None, error.what))
            continue
        for row in found:
            try:
                read(verified(row))
            except Corrupt as error:
                faults.append(Fault(error.run, error.what))
            except (ValueError, KeyError, TypeError) as error:
                faults.append(Fault(None, f"a row of {name.removeprefix('all_')} ({row[0]!r}): {error}"))
    return faults


def _all(tx: Transaction, name: str) -> list[rows.Row]:
    """Return the rows of a statement unverified, so that the caller finds all faults, not only the first."""
    with translated():
        return tx.cursor.execute(SQL[name]).fetchall()


def _structure(files: TableReader) -> list[Fault]:
    def work(tx: Transaction) -> list[Fault]:
        found = [Fault(None, f"SQLite: {line}") for line in structure.faults(tx.cursor.connection)]
        for (number,) in tx.all("stray_records"):
            found.append(Fault(None, f"records of a run without a row (number {number})"))
        for (number,) in tx.all("stray_labels"):
            found.append(Fault(None, f"the labels of a run are not those of its row (number {number})"))
        for run, digest in tx.all("missing_blobs"):
            found.append(Fault(run, f"blob {digest.hex()} is missing"))
        for key, run, state in tx.all("stray_keys"):
            found.append(Fault(run, f"key {key!r} is {state} by a run that has ended or does not exist"))
        return found

    try:
        return files.read(work)
    except StoreError as error:
        return [Fault(error.run, str(error))]


def _run_faults(files: TableReader, run_id: str) -> list[Fault]:
    def work(tx: Transaction) -> None:
        run = get_run(tx, run_id)
        found = tuple(halves.record_of(row) for row in tx.all("read_records", (run.number, run.base)))
        chain.verify(run.id, run.base_check, run.base, found, length=run.length, head=run.head)
        if (run.session is not None) != (run.state is State.RUNNING):
            raise Corrupt(f"the run is {run.state} and its session is {run.session!r}", run=run.id)

    try:
        files.read(work)
    except UnknownRun:
        return []  # pruned meanwhile
    except StoreError as error:
        return [Fault(run_id, error.what)]
    except (KeyError, ValueError, TypeError) as error:
        return [Fault(run_id, f"a row holds a value that is never written: {error}")]
    return []


def _blob_faults(files: TableReader) -> list[Fault]:
    faults: list[Fault] = []
    try:
        digests = files.read(lambda tx: [digest for (digest,) in tx.all("blob_digests")])
    except StoreError as error:
        return [Fault(None, error.what)]
    for digest in digests:
        try:
            row = files.read(partial(_packed, digest=digest))
            if row is not None:
                blobs.unpack(digest, row[0])
        except StoreError as error:
            faults.append(Fault(None, error.what))
    return faults


def _packed(tx: Transaction, digest: bytes) -> rows.Row | None:
    return tx.one("read_blob", (digest,))


def prune(files: Database, ended_before_ms: int, forget_before_ms: int, blobs_before_ms: int) -> Pruned:
    """Remove journals, turn keys into tombstones, remove blobs; see `Maintenance.prune`."""
    journals = records = keys = forgotten = swept = 0
    # Rows that a damaged index hides would look unneeded or unreferenced, and would be removed.
    files.read(
        lambda tx: structure.require_sound(tx.cursor.connection, "runs", "records", "keys", "blob_runs")
    )
    while cleared := files.write(lambda tx: _clear(tx, max(ended_before_ms, forget_before_ms))):
        journals += len(cleared)
        records += sum(removed for removed, _ in cleared)
        keys += sum(buried for _, buried in cleared)
    after: int | None = 0
    while after is not None:
        after, removed = files.write(partial(_shorten, after=after))
        records += removed
    while gone := files.write(lambda tx: _forget(tx, forget_before_ms)):
        forgotten += gone
    while gone := files.write(lambda tx: _sweep(tx, blobs_before_ms)):
        swept += gone
    return Pruned(journals=journals, records=records, blobs=swept, keys=keys, runs=forgotten)


def _clear(tx: Transaction, before_ms: int) -> list[tuple[int, int]]:
    """Clear the journals of some ended runs; their rows keep head and length."""
    done = []
    for (name,) in tx.all("ended_runs", (before_ms,)):
        run = get_run(tx, name)
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


def _sweep(tx: Transaction, before_ms: int) -> int:
    old = tx.all("old_blobs", (before_ms,))
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
        ((check,),) = tx.all("read_check", (number, previous - 1))
        _rebase(tx, run, previous, check)
        removed += delete_records(tx, number, previous)
    return (batch[-1][0] if batch else None), removed


def _forget(tx: Transaction, before_ms: int) -> int:
    batch = tx.all("forgettable_runs", (before_ms,))
    for (name,) in batch:
        run = get_run(tx, name)
        save_labels(tx, run, is_gone=True)
        tx.do("forget_run", (run.number,))
    return len(batch)


def accept_loss(path: str | Path, clock: Clock) -> list[str]:
    """Continue with a database that is behind its anchor, or has none, and accept that the rest is lost.

    Every unfinished run is paused, since it may have done what is no longer recorded: a person inspects and
    resumes each. Returns their ids. If it is killed half-way, call it again.
    Raises UsageError when nothing is lost, or while a process has the database open.
    """
    where = paths.locate(path)
    queue = WritersQueue(where.live, 5.0)
    try:
        queue.acquire()
        try:
            with translated():
                return _accept(where, clock)
        finally:
            queue.release()
    finally:
        queue.close()


def _accept(where: StorePaths, clock: Clock) -> list[str]:
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
