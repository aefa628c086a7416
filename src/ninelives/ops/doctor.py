"""The doctor: prove that a store is writable and durable before work is accepted.

Every check is one finding: ok, warn (it works, but needs attention) or fail (do not use this store). The
proof is a real write: a probe is written in a synced transaction of the public protocol and read back by
another connection. Probes are blobs that nothing refers to; `store prune` removes them after an hour.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from ninelives.core.errors import Corrupt, StoreBroken, StoreError, UsageError
from ninelives.core.model.run import RunQuery
from ninelives.store import Store
from ninelives.stores import url as urls
from ninelives.stores.open import open_store
from ninelives.stores.presence import is_there
from ninelives.views import sessions
from ninelives.views.counted import counted
from ninelives.views.sessions import SessionLife

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

PROBES = 20
_SLOW_MS = 50.0
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1 << 30, 64 << 20
_SKEW_MS = 5_000
_CLOCK_RUNS, _CLOCK_RECORDS = 20, 100  # how much is read to find times ahead of the clock
_EPOCH_MS = 1_735_689_600_000  # 2025: a clock before that was never set
_FLEETING = {
    "tmpfs": "is memory: everything is lost at a reboot",
    "ramfs": "is memory: everything is lost at a reboot",
    "overlay": "may be a container's layer, which is deleted with the container",
}


class Level(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """One check: its name, its result, what was found, and what to do."""

    check: str
    level: Level
    what: str
    remedy: str = ""


def _ok(check: str, what: str) -> DoctorFinding:
    return DoctorFinding(check=check, level=Level.OK, what=what)


def _warning(check: str, what: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(check=check, level=Level.WARN, what=what, remedy=remedy)


def _failure(check: str, what: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(check=check, level=Level.FAIL, what=what, remedy=remedy)


def prove(store: Store) -> None:
    """Write a probe durably and read it back. Raises StoreError when the store is not usable."""
    probe = b"ninelives probe " + secrets.token_bytes(16)
    (digest,) = store.put_blobs([probe])
    if store.get_blobs([digest]).get(digest) != probe:
        raise StoreBroken(
            "a probe that was written was read back changed",
            remedy="Do not use this disk; see: ninelives doctor",
        )


def examine(url: str) -> Iterator[DoctorFinding]:
    """Examine a store, without creating one; yield each finding as it is made.

    Raises UsageError when the URL names no store.
    """
    path = database_of(url)
    store = _opened(url)
    if isinstance(store, DoctorFinding):
        yield store
        if path is not None and path.parent.is_dir():
            # Permissions of what is not there are not right: only what is wrong with the directory is said.
            yield from (one for one in _surroundings(path) if path.exists() or not _is_right(one))
        return
    try:
        yield _ok("open", store.url)
        if path is None:
            yield from _durability(store)
        else:
            yield from _surroundings(path)
            yield from _database(store, path)
        yield from _guarded(store)
    finally:
        store.close()


def _opened(url: str) -> AnyStore | DoctorFinding:
    """Open the store; return a finding if there is none, or it cannot be opened."""
    try:
        if is_there(url):
            return open_store(url)
    except StoreError as error:
        return _failed("open", error)
    return _failure(
        "open",
        f"there is no store at {database_of(url) or urls.shown(url)}",
        "Name one with --store or NINELIVES_STORE; run, start, worker and up create a new one",
    )


def worst(findings: Iterable[DoctorFinding]) -> Level:
    """Return the worst level among findings."""
    levels = {finding.level for finding in findings}
    return Level.FAIL if Level.FAIL in levels else Level.WARN if Level.WARN in levels else Level.OK


def database_of(url: str) -> Path | None:
    """Return the database file that a URL names, if it names one."""
    path = urls.path_of(url)
    return Path(os.path.realpath(path)) if path is not None else None


# The server --------------------------------------------------------------------------------------


def _durability(store: AnyStore) -> Iterator[DoctorFinding]:
    """Check whether a store without a file survives a crash; report the risks that the URL accepts, too."""
    risks = dict(store.risks)
    if store.url == "memory:":
        what = "this store is in this process's memory: it is lost with the process"
        risks[what] = "Name a file with --store sqlite:///PATH"
    for what, remedy in risks.items():
        yield _warning("durability", what, remedy)
    if not risks:
        what = "the server syncs what it acknowledges, according to its settings"
        yield _ok("durability", what)
    if store.lossy is not None:
        what = f"no non-resumable action is started: {store.lossy}"
        yield _warning("actions", what, "Fix the server's settings")


# The disk ----------------------------------------------------------------------------------------


def _surroundings(path: Path) -> Iterator[DoctorFinding]:
    from ninelives.stores.sqlite.files import paths

    yield _permissions(path)
    yield judge_filesystem(*paths.filesystem_of(path, paths.mounted()))
    yield judge_space(shutil.disk_usage(path.parent).free)


def _is_right(found: DoctorFinding) -> bool:
    return found.check == "permissions" and found.level is Level.OK


def _permissions(path: Path) -> DoctorFinding:
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-anchor")]
    open_files = [file for file in files if file.exists() and file.stat().st_mode & 0o077]
    if open_files:
        return _warning(
            "permissions",
            f"other users can read {', '.join(file.name for file in open_files)}",
            f"chmod 600 {' '.join(map(str, open_files))}",
        )
    mode = path.parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return _warning(
            "permissions", f"every user can replace files in {path.parent}", f"chmod o-w {path.parent}"
        )
    return _ok("permissions", "only this user can access the files")


def judge_filesystem(point: str, kind: str) -> DoctorFinding:
    """Return whether a filesystem is persistent."""
    if kind in _FLEETING:
        return _warning(
            "filesystem",
            f"{kind} at {point} {_FLEETING[kind]}",
            "Keep the store on a disk, or on a volume mounted from outside the container",
        )
    return _ok("filesystem", f"{kind} at {point}")


def judge_space(free: int) -> DoctorFinding:
    """Return whether there is enough free space."""
    what = f"{free / (1 << 30):,.1f} GiB free"
    if free < _TOO_LITTLE_BYTES:
        return _failure("space", what, "Free disk space before you continue")
    if free < _LITTLE_BYTES:
        return _warning("space", what, "Free disk space, or prune the store")
    return _ok("space", what)


# The database ------------------------------------------------------------------------------------


def _database(store: AnyStore, path: Path) -> Iterator[DoctorFinding]:
    from ninelives.stores.sqlite.files import anchor, connection
    from ninelives.stores.sqlite.files.checkpointer import LOG_BYTES

    before, after = store.migrate()
    moved = f", migrated from {before}" if before != after else ""
    yield _ok("schema", f"version {after}{moved}")
    try:
        _, commits, _ = anchor.read(path.with_name(f"{path.name}-anchor"))
        yield _ok("anchor", f"agrees, at commit {commits:,}")
        # Opening a store asserts every setting; this only reports them.
        with_settings = connection.connect(path)
        try:
            names = ("journal_mode", "synchronous", "page_size")
            settings = ", ".join(f"{name}={with_settings.pragma(name)}" for name in names)
            ((version,),) = with_settings.execute("SELECT sqlite_version()")
        finally:
            with_settings.close()
    except (StoreError, FileNotFoundError) as error:
        yield _failed("settings", error)
        return
    yield _ok("settings", f"SQLite {version}: {settings}")
    log = path.with_name(f"{path.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    yield judge_log(size, LOG_BYTES)


def judge_log(size: int, usual: int) -> DoctorFinding:
    """Return whether the write-ahead log is emptied as it should be."""
    what = f"{size / (1 << 20):,.1f} MiB"
    if size > 4 * usual:
        return _warning(
            "log",
            f"{what}; {usual / (1 << 20):,.0f} are usual: a reader prevents it from being emptied",
            "End the process that holds a long transaction (a backup, a sqlite3 shell)",
        )
    return _ok("log", what)


# What is in it -----------------------------------------------------------------------------------


def _guarded(store: AnyStore) -> Iterator[DoctorFinding]:
    """Write, read and count; an error of the store becomes a finding."""
    for check in (_writes, _clock, _sessions, _contents):
        try:
            yield from check(store)
        except StoreError as error:
            yield _failed(check.__name__.lstrip("_"), error)
            return
        except UsageError as error:  # it is encrypted, and the key is not here: it can be read all the same
            yield _failure("keys", error.what, error.remedy or "")


def _writes(store: AnyStore) -> Iterator[DoctorFinding]:
    prove(store)
    yield _ok("probe", "written, synced and read back by another connection")
    spent = []
    for _ in range(PROBES):
        probe = b"ninelives probe " + secrets.token_bytes(16)
        began = time.perf_counter()
        store.put_blobs([probe])
        spent.append((time.perf_counter() - began) * 1000)
    yield judge_latency(median(spent), max(spent))


def judge_latency(middle_ms: float, worst_ms: float) -> DoctorFinding:
    """Return whether synced writes are fast enough."""
    what = f"a synced write takes {middle_ms:.2f} ms (median of {PROBES}), {worst_ms:.2f} ms at worst"
    if middle_ms > _SLOW_MS:
        return _warning(
            "latency", what, "Every step waits for a synced write: use a local disk with a fast sync"
        )
    return _ok("latency", what)


def _clock(store: AnyStore) -> Iterator[DoctorFinding]:
    runs = store.list_runs(RunQuery(limit=200))
    newest = [run.changed_ms for run in runs]
    # A row may have been written again since the clock was corrected; its older records keep their times.
    for run in sorted(runs, key=lambda run: run.number)[-_CLOCK_RUNS:]:
        with suppress(Corrupt):
            records = store.load_journal(run.id, since=max(run.base, run.length - _CLOCK_RECORDS)).records
            newest += [record.at_ms for record in records]
    newest += [session.renewed_ms for session in store.list_sessions()]
    yield judge_clock(store.now_ms(), max(newest, default=0))


def judge_clock(now_ms: int, newest_ms: int) -> DoctorFinding:
    """Return whether the clock can be right."""
    ahead_ms = newest_ms - now_ms
    if now_ms < _EPOCH_MS:
        return _warning("clock", "it was never set", "Set it: timers depend on it")
    if ahead_ms > _SKEW_MS:
        return _warning(
            "clock",
            f"the store has times {ahead_ms / 1000:,.0f} s ahead of the clock: it was set back",
            "Set the clock: timers wait that much longer (leases do not depend on it)",
        )
    return _ok("clock", "no time in the store is ahead of it")


def _sessions(store: AnyStore) -> Iterator[DoctorFinding]:
    found = sessions.seen(store)
    counts = Counter(one.state for one in found.values())
    what = ", ".join(
        f"{counts[life]} {life.value}" for life in (SessionLife.ALIVE, SessionLife.DEAD, SessionLife.EXPIRED)
    )
    gone = [one.id for one in found.values() if one.state is not SessionLife.ALIVE]
    if gone and any(store.list_runs(RunQuery(session=session, limit=1)) for session in gone):
        yield _warning(
            "sessions",
            f"{what}: runs of dead sessions wait for a takeover",
            "Start a worker, or `ninelives run` with the run's id: the run resumes",
        )
    else:
        yield _ok("sessions", what)


def _contents(store: AnyStore) -> Iterator[DoctorFinding]:
    found = store.stats()
    states = ", ".join(f"{count:,} {state}" for state, count in found.runs.items() if count)
    yield _ok("runs", states or "none yet")
    yield _ok("inbox", f"{found.open_items:,} open")
    size = f"{sum(store.gauges().used.values()) / (1 << 20):,.1f} MiB used after these checks"
    yield _ok("size", f"{counted(found.records, 'record')}, {counted(found.blobs, 'blob')}, {size}")


def _failed(check: str, error: StoreError | OSError) -> DoctorFinding:
    if isinstance(error, StoreError):
        return _failure(check, f"{type(error).__name__}: {error.what}", error.remedy or "")
    return _failure(check, str(error))
