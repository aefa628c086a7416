"""The embedded store: one SQLite file, many processes on one host.

`ninelives.store.Store` says what each method means; `sqlite.files` says how it becomes durable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    IdConflict,
    NineLivesError,
    StoreUnavailable,
    UnknownRun,
    UsageError,
)
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import run_rules, validation
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.clock import SystemClock
from ninelives.stores.shared import rows
from ninelives.stores.sqlite import (
    checks,
    claims,
    commits,
    inbound,
    journals,
    maintenance,
    recovery_log,
)
from ninelives.stores.sqlite import (
    salvage as salvaging,
)
from ninelives.stores.sqlite.files import backups, schema
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.sessions import Watch
from ninelives.stores.sqlite.transaction import Transaction, decoding, find_key, find_run

T = TypeVar("T")


class SqliteStore:
    """A store in one file; implements `Store` and `Maintenance`."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        lock_timeout_seconds: float = 5.0,
        migrations: Sequence[str] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._damaged: set[int] = set()
        self._files = Database(path, self._clock, lock_timeout_seconds, migrations or schema.migrations())
        self._sessions = Watch(self._clock, self._files.locks)

    @property
    def path(self) -> Path:
        """Return the path of the database."""
        return self._files.paths.database

    @property
    def url(self) -> str:
        """Return the URL, safe to print."""
        return f"sqlite:///{quote(os.fsencode(self.path))}"

    @property
    def identity(self) -> str:
        """Return the empty string: `renew_session` checks instead that the file is still the same."""
        return ""

    @property
    def lossy(self) -> str | None:
        """Return None: this store keeps everything that it acknowledged."""
        return None

    def now_ms(self) -> int:
        """Return the wall clock of this host."""
        self._files.require()
        return self._clock.now_ms()

    read_clock = now_ms

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs, each with its record 0."""

        def work(tx: Transaction) -> list[RunRow | UsageError]:
            if session is not None:
                self._session(tx, session)
            return claims.create(tx, new, session)

        return self._files.write(work)

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None."""
        return self._files.read(lambda tx: find_run(tx, run))

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        try:
            labels = msgspec.json.encode(query.labels).decode()
        except UnicodeEncodeError:
            return []  # no run can have such a label
        states = msgspec.json.encode(query.states).decode()
        wanted = msgspec.to_builtins(query) | {
            "states": states,
            "labels": labels,
            "limit": max(0, query.limit),
        }
        name = "list_runs" if query.parent is None else "list_children"
        if query.labels and query.parent is None:
            name = "list_labelled"
            wanted["label"], wanted["value"] = next(iter(query.labels.items()))

        def work(tx: Transaction) -> list[RunRow]:
            with decoding("a run's row"):
                return [rows.run_of(row) for row in tx.all(name, wanted)]

        return self._files.read(work)

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and hold its lock."""
        self._files.require()
        fault = validation.fault_in_session(new)
        if fault is not None:
            raise fault
        taken = IdConflict(
            f"session {new.id!r} was registered before", remedy="Use a fresh id for each process"
        )
        try:
            with self._files.expected():
                self._files.locks.hold(new.id)
        except BlockingIOError:
            raise taken from None
        # CRASH: a lock file without a session; nothing refers to it.

        def work(tx: Transaction) -> Session:
            if tx.one("read_session", (new.id,)) is not None:
                raise taken
            boot_ms, boot_id = self._clock.boot_ms(), self._clock.boot_id
            row = rows.row_of_session(new, tx.now_ms, boot_ms, boot_id)
            tx.do("insert_session", checks.sealed("sessions", (*row, None, None, None)))
            return self._session(tx, new.id)

        try:
            self._files.fill_log()
            return self._files.write(work)
        except BaseException:
            self._files.locks.discard(new.id)
            raise

    def renew_session(self, session: str) -> Session:
        """Renew the lease of a session that still has one."""
        self._files.require_in_place()

        def work(tx: Transaction) -> Session:
            self._session(tx, session)
            tx.do("renew_session", (tx.now_ms, self._clock.boot_ms(), session))
            return self._session(tx, session)

        return self._files.write(work, urgent=True)

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        seen = evidence or {}
        fault = validation.fault_in_evidence(seen)
        if fault is not None:
            raise fault
        if sessions is None:
            live, swept = self._files.read(lambda tx: (self._sessions.live(tx), self._sessions.swept(tx)))
            endings = self._sessions.gone(live)
            self._sweep(swept)
        else:
            endings = {session: (cause, seen.get(session)) for session in sessions}
        if not endings:
            return []

        def work(tx: Transaction) -> tuple[list[str], list[Session]]:
            proved = self._sessions.prove(tx, endings)
            ended = self._sessions.end(tx, endings, self._damaged_json(), is_proof=sessions is not None)
            return proved, ended

        def suspects(tx: Transaction) -> list[int]:
            return [row[0] for one in endings for row in tx.all("numbers_of_session", (one,))]

        proved, ended = self._around_damage(lambda: self._files.write(work, urgent=True), suspects)
        # The process of an expired session may still live; its lock, which we keep, will show its death.
        over = [session.id for session in ended if session.cause is not Cause.EXPIRED]
        for name in (*over, *filter(self._files.locks.is_dropped, proved)):
            self._files.locks.discard(name)
        return ended

    def _sweep(self, swept: Mapping[str, Evidence]) -> None:
        """Remove the lock files of sessions that expired and whose processes have gone since."""
        if swept:
            self._files.write(lambda tx: self._sessions.sweep(tx, swept), urgent=True)
            # CRASH: lock files that are no longer needed; the rows hold the same evidence.
            for session in swept:
                self._files.locks.discard(session)

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._files.read(lambda tx: self._sessions.find(tx, session))

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return self._files.read(self._sessions.live)

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        fault = validation.fault_in_log(new)
        if fault is not None:
            raise fault
        self._files.write(lambda tx: recovery_log.append(tx, new))

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first."""
        return self._files.read(lambda tx: recovery_log.read(tx, run, before, _clamped(limit)))

    def _session(self, tx: Transaction, session: str) -> Session:
        return claims.get_session(tx, session, self._clock)

    # Ownership and the write path ---------------------------------------------------------------

    def claim_runs(
        self,
        session: str,
        limit: int,
        agents: Mapping[str, int],
        *,
        queues: Sequence[str] = ("default",),
        host: str | None = None,
        only: str | None = None,
        alone: bool = False,
    ) -> Claims:
        """Claim due runs for the session."""
        wanted = [agent for agent, quota in agents.items() if quota > 0]
        queues = tuple(dict.fromkeys(queues))

        def peek(tx: Transaction) -> Claims:
            self._session(tx, session)
            if only is not None:
                return Claims((), claims.family_due(tx, only, wanted, queues, host))
            waiting = claims.waiting_agents(tx, wanted, queues)
            suspects = claims.next_due(tx, waiting, host, alone=True)
            others = suspects if alone else claims.next_due(tx, waiting, host, alone=False)
            return Claims((), others, suspects)

        # Read before joining the writers' queue: an idle worker must not slow down the writers.
        seen = self._files.read(peek)
        if limit <= 0 or seen.next_due_ms is None or seen.next_due_ms > self._clock.now_ms():
            return seen

        def work(tx: Transaction) -> Claims:
            owner = self._session(tx, session)
            if only is not None:
                return claims.claim_family(tx, owner, only, limit, agents, queues, host)
            return claims.claim(tx, owner, limit, agents, queues, host, self._damaged_json(), alone)

        def suspects(tx: Transaction) -> list[int]:
            return claims.numbers_waiting(tx, wanted, queues)

        return self._around_damage(lambda: self._files.write(work), suspects)

    def _around_damage(self, call: Callable[[], T], suspects: Callable[[Transaction], list[int]]) -> T:
        """Call something that reads the rows of many runs; skip damaged rows and call it once more.

        One damaged run must not hold up the others. Raises Corrupt when the damage is not in a run's row.
        """
        try:
            return call()
        except Corrupt:
            found = {number for number in self._files.read(suspects) if self._is_damaged(number)}
            if found <= self._damaged:
                raise
            self._damaged |= found
            return call()

    def _is_damaged(self, number: int) -> bool:
        def work(tx: Transaction) -> None:
            row = tx.one("read_run_by_number", (number,))
            with decoding("a run's row"):
                if row is not None:
                    rows.run_of(row)

        try:
            self._files.read(work)
        except Corrupt:
            return True
        return False

    def _damaged_json(self) -> str:
        return msgspec.json.encode(sorted(self._damaged)).decode()

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, verified."""
        return self._files.read(lambda tx: journals.read_journal(tx, run, since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, verified."""
        try:
            return [*self._files.read(lambda tx: journals.read_journals(tx, runs))]
        except Corrupt:
            return [self._load(run) for run in runs]

    def _load(self, run: str) -> Journal | NineLivesError:
        try:
            return self.load_journal(run)
        except (Corrupt, UnknownRun) as error:
            return error

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return the news of runs whose counter has changed."""
        return self._files.read(lambda tx: inbound.read_news(tx, seen))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return salvaging.salvage(self._files, run, epoch)

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        try:
            return self._files.write(lambda tx: commits.commit(tx, batch))
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRecord(f"SQLite cannot take a value of the batch: {error}") from error

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""

        def work(tx: Transaction) -> dict[str, Key]:
            found = ((key, find_key(tx, key)) for key in keys)
            return {key: row for key, row in found if row is not None}

        return self._files.read(work)

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Append a signal to a run's queue and wake it."""
        fault = validation.fault_in_name(name, "signal name")
        if fault is None and id is not None:
            fault = validation.fault_in_name(id, "signal id")
        if fault is None:
            fault = validation.too_large(body, "signal", run)
        if fault is not None:
            raise fault
        return self._files.write(lambda tx: inbound.send_signal(tx, run, name, body, id or ""))

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        return self._files.write(lambda tx: inbound.control(tx, run, control))

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return inbox items, oldest first."""

        def work(tx: Transaction) -> list[Item]:
            if item is not None:
                found = tx.all("read_item", (item,))
            elif run is not None:
                found = tx.all("items_of_run", (run,))
            elif answered:
                found = tx.all("list_inbox", (_clamped(limit),))
            else:
                found = tx.all("list_open_items", (_clamped(limit),))
            with decoding("an inbox item", run):
                items = [rows.item_of(row) for row in found]
            fitting = [
                one for one in items if run in (None, one.run) and (answered or one.state is ItemState.OPEN)
            ]
            return fitting[: _clamped(limit)]

        return self._files.read(work)

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        fault = validation.fault_in_name(by, "name of who answers") or validation.too_large(body, "answer")
        if fault is not None:
            raise fault
        return self._files.write(lambda tx: inbound.answer(tx, item, digest, body, by))

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents under their digests."""
        named = [(blobs.digest(content), content) for content in contents]
        fault = next(filter(None, (validation.too_large_for_a_blob(content) for _, content in named)), None)
        if fault is not None:
            raise fault
        known = self._files.read(lambda tx: {digest for digest, _ in named if tx.one("has_blob", (digest,))})
        packed = [(digest, blobs.pack(content)) for digest, content in named if digest not in known]

        def work(tx: Transaction) -> None:
            for digest in known:
                tx.do("touch_blob", (tx.now_ms, digest, tx.now_ms - run_rules.BLOB_GRACE_MS // 4))
            for digest, content in packed:
                tx.do("insert_blob", (*checks.sealed("blobs", (digest, tx.now_ms)), content))

        self._files.write(work)
        return [digest for digest, _ in named]

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        wanted = list(digests)

        def work(tx: Transaction) -> dict[bytes, bytes]:
            found = {}
            for digest in wanted:
                row = tx.one("read_blob", (digest,))
                if row is None:
                    raise Corrupt(f"blob {digest.hex()} is missing", remedy="Restore the store from a backup")
                found[digest] = blobs.unpack(digest, row[0])
            return found

        return self._files.read(work)

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._files.require()
        with self._files.expected():
            woken = self._files.wake.wait(timeout_seconds)
        if woken and self._files.wake.take_death():
            with suppress(StoreUnavailable):  # the next poll of any worker ends it
                self.end_sessions(None, Cause.DIED)
        return woken

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        return self._files.wait_for_output(timeout_seconds)

    def close(self) -> None:
        """Close files and connections."""
        self._files.close()

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return nothing: a SQLite URL has no risks to accept."""
        return {}

    def migrate(self) -> tuple[int, int]:
        """Return the schema versions before and after opening: opening migrates."""
        self._files.require()
        return self._files.migrated

    def stats(self) -> Stats:
        """Measure the store."""
        return self._files.read(lambda tx: maintenance.measure(tx, self._files.paths))

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        return maintenance.verify(self._files, progress)

    def backup(self, path: str | Path, progress: Progress | None = None) -> backups.Backup:
        """Copy the store to a file while it is in use, and verify the copy."""
        return backups.back_up(self._files, Path(path), progress)

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove what is no longer needed, in small transactions."""
        grace_ms = self._clock.now_ms() - run_rules.BLOB_GRACE_MS
        return maintenance.prune(self._files, ended_before_ms, forget_before_ms, grace_ms)


def _clamped(limit: int) -> int:
    return min(max(0, limit), 2**62)
