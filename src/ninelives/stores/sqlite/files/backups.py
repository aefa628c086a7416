"""Backup and restore: a whole, verified copy while workers run, and a restore that repeats no action.

A backup is one ordinary SQLite file, like one that a stock tool would make; ours is verified before it gets
its name. A restored store is another store than the one it was copied from (it has a new id), and its
unfinished runs wait for a person, see `core.rules.restore`. If we are killed here, either nothing has its
final name yet or everything has; the same command completes the work.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import apsw
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal import chain
from ninelives.core.model.commit import Verdict
from ninelives.core.model.document import STORE_ID
from ninelives.core.model.key import DoubtKey
from ninelives.core.model.run import Kind, Record, RunRow
from ninelives.core.model.session import Cause
from ninelives.core.rules import inbox_rules
from ninelives.core.rules.restore import RESTORED, Doubt, doubts_in, fenced
from ninelives.core.values import blobs
from ninelives.store import Progress
from ninelives.stores.durable_files import sync_directory
from ninelives.stores.shared import commit_rules, rows
from ninelives.stores.shared.sessions import Ending
from ninelives.stores.sqlite import checks, claims
from ninelives.stores.sqlite.files import anchor, paths, schema, verification
from ninelives.stores.sqlite.files.connection import APPLICATION_ID, connect, translated
from ninelives.stores.sqlite.files.database import Database, is_open_here, require_closed
from ninelives.stores.sqlite.files.paths import StorePaths
from ninelives.stores.sqlite.files.write_queue import held
from ninelives.stores.sqlite.journals import read_journal
from ninelives.stores.sqlite.tables import Tables
from ninelives.stores.sqlite.transaction import Transaction, append_all, get_run, save_runs

_STEP_PAGES = 256
Answer = TypeVar("Answer")


class Backup(Struct, frozen=True):
    """A backup that was made: where it is, and what is in it."""

    path: str
    bytes: int
    runs: int
    commits: int


class Restored(Struct, frozen=True):
    """The result of a restore: which runs wait for a person, and what was there before."""

    path: str
    runs: int
    paused: tuple[str, ...]
    doubts: tuple[tuple[str, str], ...]
    """Runs and steps that were started and have no outcome."""
    replaced: str | None


# Backup ------------------------------------------------------------------------------------------


def back_up(files: Database, target: Path, progress: Progress | None = None) -> Backup:
    """Copy the store to a file while it is in use; the copy is verified before it gets its name.

    Raises UsageError for a file that we may not replace; Corrupt when the copy is not sound.
    """
    files.require()
    target = target.absolute()
    _refuse_target(target, files.paths)
    with _draft(target) as draft:
        source = files.connect()
        try:
            with translated():
                source.execute("BEGIN")
                source.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # fixes the snapshot
                _copy(source, draft, progress)
        finally:
            source.close()
        made = _verified(draft, target)
        # CRASH: a draft beside the target, which is as it was; the next backup to that name overwrites it.
        _name(draft, target)
    return made


def _refuse_target(target: Path, where: StorePaths) -> None:
    if not target.parent.is_dir():
        raise UsageError(f"there is no directory {target.parent}", remedy="Create it first")
    if target.exists():
        if target.samefile(where.database):
            raise UsageError(f"{target} is the store itself", remedy="Name another file")
        if not is_open_here(target):
            paths.inspect(replace(where, database=target), APPLICATION_ID)
        require_closed(target)
    for beside in ("-wal", "-anchor"):
        if Path(f"{target}{beside}").exists():
            raise UsageError(
                f"{target}{beside} exists: {target.name} was opened as a store",
                remedy="Name another file, or remove both if they are not needed",
            )


def _verified(draft: Path, target: Path) -> Backup:
    copy = _Copy(draft)
    try:
        _require_sound(copy, target)
        runs = copy.read(_count)
        counted = copy.read(lambda tx: tx.all("read_store"))[0][2]
    finally:
        copy.close()
    return Backup(str(target), draft.stat().st_size, runs, counted)


def _require_sound(copy: _Copy, name: Path) -> None:
    # A duplicate that the journals prove is in the store as well: it is no reason to have no backup.
    faults = [fault for fault in verification.verify(copy, None) if not fault.duplicate]
    if faults:
        first = faults[0]
        raise Corrupt(
            f"the copy {name} is not sound ({len(faults)} faults): {first.run or 'store'}: {first.what}",
            remedy="See `ninelives store verify`; an older file of that name is unchanged",
        )


# Restore -----------------------------------------------------------------------------------------


def restore(
    source: Path, path: str | Path, clock: Clock, *, replaces: bool = False, progress: Progress | None = None
) -> Restored:
    """Restore a store from a backup, or from any copy of its database. A refused one leaves nothing behind.

    Raises UsageError when a store exists and `replaces` is false, while a process has it open, or when the
    source is no store; Corrupt; StoreUnsafe where we may not write.
    """
    if not source.is_file():
        raise UsageError(f"there is no file {source}", remedy="Name the backup")
    where = paths.named(path)
    try:
        if not is_open_here(source):
            with source.open("rb") as file:
                if file.read(len(paths.HEADER)) != paths.HEADER:
                    raise _no_store(source)
        with _directory(where.database.parent), translated():
            return _restore(source, where, clock, replaces, progress)
    except OSError as error:
        raise paths.not_possible(where.database, error) from error


def _restore(
    source: Path, where: StorePaths, clock: Clock, replaces: bool, progress: Progress | None
) -> Restored:
    _refuse_store(where, source, replaces)
    with _draft(where.database) as draft:
        runs, paused, doubts, store_id, counted = _prepared(source, draft, clock, progress)
        with held(paths.locate(where.database).live):
            _refuse_store(where, source, replaces)  # one may have been created or opened meanwhile
            replaced = _moved_aside(where, clock)
            anchor.create(where.anchor, store_id, counted, counted)
            # CRASH: an anchor (of the old or the new database) and no database: refused until restore runs
            # again.
            _name(draft, where.database)
    return Restored(str(where.database), runs, paused, doubts, replaced)


def _refuse_store(where: StorePaths, source: Path, replaces: bool) -> None:
    if not where.database.exists():
        return
    if where.database.samefile(source):
        raise UsageError(f"{source} is the store itself", remedy="Name a backup of it")
    require_closed(where.database)
    if not replaces:
        raise UsageError(
            f"there is a store at {where.database}",
            remedy="Name another path; or pass --replace, which keeps the old store under another name",
        )


def _prepared(source: Path, draft: Path, clock: Clock, progress: Progress | None) -> _Waiting:
    """Copy the source to the draft, verify it, and make its unfinished runs wait for people."""
    backup = _opened_to_read(source)
    try:
        _copy(backup, draft, progress)
    finally:
        backup.close()
    copy = _Copy(draft)
    try:
        if copy.connection.pragma("application_id") != APPLICATION_ID:
            raise _no_store(source)
        schema.migrate(copy.connection, schema.migrations())
        schema.check(copy.connection, schema.migrations())
        _require_sound(copy, source)
        waiting = copy.write(lambda tx: _wait_for_people(tx, clock), clock.now_ms())
    finally:
        copy.close()
    paths.sync_file(draft)
    return waiting


def _no_store(source: Path) -> UsageError:
    return UsageError(
        f"{source} is not a Nine Lives store (or its header is damaged)", remedy="Name a backup of one"
    )


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """Create a directory; if the caller fails, remove what was created and is empty."""
    created = [one for one in (path, *path.parents) if not one.exists()]
    try:
        paths.make_directories(path)
        yield
    except BaseException:
        for one in created:
            with suppress(OSError):
                one.rmdir()
        raise


_Waiting = tuple[int, tuple[str, ...], tuple[tuple[str, str], ...], bytes, int]


def _wait_for_people(tx: Transaction, clock: Clock) -> _Waiting:
    """Make every unfinished run wait for a person, and fence all workers of the original store."""
    for row in tx.all("live_sessions"):
        session = rows.session_of(row, clock.boot_id, clock.boot_ms())
        claims.release(tx, session, Ending(Cause.STOPPED, RESTORED), "[]")
    names = [name for (name,) in tx.all("unfinished_runs")]
    doubts: list[tuple[str, str]] = []
    for name in names:
        journal = read_journal(tx, name, None)
        run = fenced(get_run(tx, name), tx.now_ms)
        for doubt in doubts_in(run, [_whole(tx, record) for record in journal.records], tx.now_ms):
            run = _ask(tx, run, doubt)
            doubts.append((name, doubt.item.step))
        save_runs(tx, [run])
    for (name,) in tx.all("moved_runs"):
        # The move may have been called back since, and the run have gone on: it waits if it returns here.
        save_runs(tx, [fenced(get_run(tx, name), tx.now_ms)])
    # Also for moves: what has arrived in the original is not here.
    tx.do("delete_document", (STORE_ID,))
    store_id = os.urandom(16)
    tx.do("set_store_id", (store_id,))
    ((_, _, counted, *_),) = tx.all("count_commit", (len(schema.migrations()),))
    return _count(tx), tuple(names), tuple(doubts), store_id, counted


def _count(tx: Transaction) -> int:
    return sum(count for _, count in tx.all("count_runs"))


def _whole(tx: Transaction, record: Record) -> Record:
    """Return a record with its body, even if the body is in a blob."""
    if record.body or not record.blobs or record.kind not in (Kind.INTENT, Kind.DOUBT):
        return record
    row = tx.one("read_blob", (record.blobs[0],))
    return replace(record, body=blobs.unpack(record.blobs[0], row[0])) if row is not None else record


def _ask(tx: Transaction, run: RunRow, doubt: Doubt) -> RunRow:
    """Ask a person, through the inbox, about one started action."""
    item = inbox_rules.opened(None, doubt.item, run.id, tx.now_ms)
    if isinstance(item, Verdict):
        raise Corrupt(f"the question about {doubt.item.step} cannot be asked", run=run.id)
    tx.do("insert_item", checks.sealed("items", rows.row_of_item(item)))
    if doubt.key:
        tables = Tables(tx)
        changed = commit_rules.change_key(tables.rows, DoubtKey(doubt.key), run.id, tx.now_ms)
        if isinstance(changed, Verdict):
            raise Corrupt(f"the key {doubt.key!r} cannot be put in doubt: it is not the run's", run=run.id)
        tables.write_back()
    (record,) = chain.seal(run.length, run.head, [doubt.draft], run.epoch)
    append_all(tx, [(run.number, [record])])
    length = record.seq + 1
    return replace(run, length=length, head=record.check, effect_length=max(run.effect_length, length))


def _moved_aside(where: StorePaths, clock: Clock) -> str | None:
    """Rename what exists at the path; return the new name of its database.

    The anchor is copied, not moved: an anchor without a database prevents an empty store from being created.
    """
    is_there = where.database.exists()
    aside = where.database.with_name(f"{where.database.name}-replaced-{clock.now_ms()}")
    if not is_there:
        aside = _begun_aside(where) or aside
    # The database first: an anchor or a log without one is refused; a database without them would be trusted.
    for part in ("", "-wal"):
        old = Path(f"{where.database}{part}")
        if old.exists():
            old.rename(f"{aside}{part}")
            # CRASH: the next call finds the moved files with `_begun_aside`, and moves the rest there.
    Path(f"{where.database}-shm").unlink(missing_ok=True)
    if where.anchor.exists() and aside.exists():
        _kept(where.anchor, Path(f"{aside}-anchor"))
    return str(aside) if aside.exists() else None


def _begun_aside(where: StorePaths) -> Path | None:
    """Return the database that a killed restore had renamed without its log and anchor."""
    found = where.database.parent.glob(f"{glob.escape(where.database.name)}-replaced-*")
    moved = sorted(path for path in found if path.name.rpartition("-")[2].isdecimal())
    return moved[-1] if moved and not Path(f"{moved[-1]}-anchor").exists() else None


def _kept(old: Path, copy: Path) -> None:
    """Copy a small file, whole or not at all."""
    draft = copy.with_name(f"{copy.name}-new")
    shutil.copyfile(old, draft)
    draft.chmod(0o600)
    paths.sync_file(draft)
    draft.rename(copy)


# Copies ------------------------------------------------------------------------------------------


class _Copy:
    """A database that no other process uses yet, read and written like a store's."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path)

    def require(self) -> None:
        """Do nothing: no other process uses it."""

    def read(self, work: Callable[[Transaction], Answer]) -> Answer:
        """Run a reading transaction."""
        cursor = self.connection.cursor()
        with translated(self.connection):
            cursor.execute("BEGIN")
            try:
                return work(Transaction(cursor, 0))
            finally:
                cursor.execute("ROLLBACK")

    def write(self, work: Callable[[Transaction], Answer], now_ms: int) -> Answer:
        """Run a writing transaction; if it fails, the caller discards the copy."""
        cursor = self.connection.cursor()
        with translated(self.connection):
            cursor.execute("BEGIN IMMEDIATE")
            answer = work(Transaction(cursor, now_ms))
            cursor.execute("COMMIT")
            return answer

    def close(self) -> None:
        """Close it; SQLite then moves its log into it."""
        self.connection.close()


def _opened_to_read(source: Path) -> apsw.Connection:
    """Open a copy without creating anything beside it."""
    has_log = any(Path(f"{source}{log}").exists() for log in ("-wal", "-journal"))
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(
        f"file:{quote(os.fsencode(source.absolute()))}{'' if has_log else '?immutable=1'}", flags=flags
    )


def _copy(source: apsw.Connection, draft: Path, progress: Progress | None) -> None:
    target = apsw.Connection(str(draft))
    try:
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_STEP_PAGES)
                if progress is not None:
                    progress(copying.page_count - copying.remaining, copying.page_count)
    finally:
        target.close()


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield a temporary file beside the target, to rename when complete; overwrite a leftover one.

    Raises UsageError while another process writes it.
    """
    draft = target.with_name(f"{target.name}-draft")
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _at_work(target) from None
        if not _is_named(fd, draft):  # another process finished and renamed it after we opened it
            raise _at_work(target)
        os.truncate(fd, 0)
        _clear_beside(draft)
        try:
            yield draft
        finally:
            if _is_named(fd, draft):
                draft.unlink()
                _clear_beside(draft)
    finally:
        os.close(fd)


def _at_work(target: Path) -> UsageError:
    return UsageError(f"another process is writing {target}", remedy="Wait for it")


def _is_named(fd: int, path: Path) -> bool:
    """Return whether a path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _clear_beside(draft: Path) -> None:
    for beside in ("-wal", "-shm", "-journal"):
        Path(f"{draft}{beside}").unlink(missing_ok=True)


def _name(draft: Path, target: Path) -> None:
    """Give a complete file its name, durably."""
    paths.sync_file(draft)
    draft.rename(target)
    sync_directory(target.parent)
