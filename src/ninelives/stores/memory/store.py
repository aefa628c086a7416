"""The `Store` protocol over dictionaries, under one lock.

Every method takes the lock, checks everything, and only then writes, so each is atomic. If we die,
everything is lost. This store is for tests, for trying things out, and as the reference for what the other
stores should answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    Corrupt,
    NineLivesError,
    StoreUnsafe,
    UnknownRun,
    UsageError,
)
from ninelives.core.journal import recovery_log
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import inbox_rules, validation
from ninelives.core.rules import run_rules as rules
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.memory import claims, journals, maintenance
from ninelives.stores.memory import sessions as leases
from ninelives.stores.shared import commit_rules
from ninelives.stores.shared.tables import Blob, SessionLease, Tables

VERSION = 2


class MemoryStore:
    """Keep everything in memory; implements `Store` and `Maintenance`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables = Tables()
        self._changed = Condition()
        self._happened = self._seen = 0
        self._emitted = self._read_so_far = 0
        self._pid = os.getpid()

    @property
    def url(self) -> str:
        """Return the URL, safe to print."""
        return "memory:"

    @property
    def identity(self) -> str:
        """Return the empty string: an open memory store cannot become another one."""
        return ""

    @property
    def lossy(self) -> str | None:
        """Return None: this store keeps what it acknowledged for as long as it promises."""
        return None

    def now_ms(self) -> int:
        """Return the clock's wall time."""
        with self._open():
            return self._clock.now_ms()

    read_clock = now_ms

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs; the answer for a refused one is its error, at the same position."""
        with self._open():
            if session is not None:
                leases.owned(self._tables, self._clock, session)
            now_ms = self._clock.now_ms()
            answers = [claims.create(self._tables, one, now_ms, session) for one in new]
            if any(is_waiting for _, is_waiting in answers):
                self._wake()
            return [answer for answer, _ in answers]

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row."""
        with self._open():
            return self._tables.rows.runs.get(run)

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        with self._open():
            fitting = [run for run in self._tables.rows.runs.values() if claims.fits(run, query)]
        fitting.sort(key=lambda run: run.number, reverse=True)
        return fitting[: max(0, query.limit)]

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session."""
        with self._open():
            _refuse(validation.fault_in_session(new))
            return leases.register(self._tables, self._clock, new)

    def renew_session(self, session: str) -> Session:
        """Renew the lease of a session that still has one."""
        with self._open():
            return leases.renew(self._tables, self._clock, session)

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        with self._open():
            seen = evidence or {}
            _refuse(validation.fault_in_evidence(seen))
            live = [lease for lease in self._tables.sessions.values() if lease.session.ended_ms is None]
            if sessions is None:
                expired = [lease for lease in live if lease.left_ms(self._clock.boot_ms()) == 0]
                return [self._ended(lease, Cause.EXPIRED, None) for lease in expired]
            for lease in self._tables.sessions.values():
                if lease.session.id in sessions and lease.session.ended_ms is not None:
                    lease.session = rules.proved(lease.session, seen.get(lease.session.id))
            named = [lease for lease in live if lease.session.id in sessions]
            return [self._ended(lease, cause, seen.get(lease.session.id)) for lease in named]

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        with self._open():
            lease = self._tables.sessions.get(session)
            return leases.read(lease, self._clock) if lease is not None else None

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        with self._open():
            live = (one for one in self._tables.sessions.values() if one.session.ended_ms is None)
            return [leases.read(lease, self._clock) for lease in live]

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        with self._open():
            _refuse(validation.fault_in_log(new))
            leases.log(self._tables, self._clock, new)

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first."""
        with self._open():
            log = self._tables.log
            found = [
                entry
                for entry in reversed(log)
                if run in (None, entry.run) and (before is None or entry.seq < before)
            ][: max(0, limit)]
            return [
                recovery_log.verify(log[one.seq - 1].check if one.seq else recovery_log.START, one)
                for one in found
            ]

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
        """Claim due runs for a session, agents in turn."""
        with self._open():
            leases.owned(self._tables, self._clock, session)
            now_ms = self._clock.now_ms()
            return claims.claim(
                self._tables, session, limit, agents, now_ms, queues=queues, host=host, only=only, alone=alone
            )

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, its chain verified."""
        with self._open():
            return journals.read(self._tables, run, since)

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return the news of runs whose counter has changed."""
        with self._open():
            return list(journals.news(self._tables, seen, self._clock.now_ms()))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, their chains verified."""
        with self._open():
            return [self._load(run) for run in runs]

    def _load(self, run: str) -> Journal | NineLivesError:
        try:
            return self.load_journal(run)
        except (Corrupt, UnknownRun) as error:
            return error

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        with self._open():
            return journals.salvage_journal(self._tables, run, epoch, self._clock.now_ms())

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs; one verdict each."""
        if len({commit.run for commit in batch}) != len(batch):
            raise UsageError(
                "a run occurs twice in one batch", remedy="Merge its commits, or send them apart"
            )
        with self._open():
            return [self._committed(commit) for commit in batch]

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""
        with self._open():
            return {key: self._tables.rows.keys[key] for key in keys if key in self._tables.rows.keys}

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Append a signal to a run's queue and wake it."""
        with self._open():
            _refuse(validation.fault_in_name(name, "signal name"))
            _refuse(validation.fault_in_name(id, "signal id") if id is not None else None)
            _refuse(validation.too_large(body, "signal", run))
            row, rows = journals.find(self._tables, run), self._tables.rows
            queue = rows.signals.get(run, ())
            for known in queue:
                if id is not None and known.id == id:
                    return inbox_rules.same_signal(known, name, body)
            if row.state.is_final:
                raise rules.finished(row, "signalled")
            now_ms, number = self._clock.now_ms(), len(queue) + 1
            signal = Signal(run=run, number=number, name=name, id=id or "", body=body, at_ms=now_ms)
            rows.signals[run] = (*queue, signal)
            rows.runs[run] = rules.nudged(row, now_ms)
            self._wake()
            return signal

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        with self._open():
            before, now_ms, rows = journals.find(self._tables, run), self._clock.now_ms(), self._tables.rows
            after = rules.controlled(before, control, now_ms)
            if after != before:
                rows.runs[run] = after
                if after.state.is_final:
                    commit_rules.end(rows, after, now_ms)
                self._wake()
            return after

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return open items, or all, oldest first."""
        with self._open():
            items = self._tables.rows.items.values()
            fitting = [
                one
                for one in items
                if run in (None, one.run)
                and item in (None, one.id)
                and (answered or one.state is ItemState.OPEN)
            ]
            return fitting[: max(0, limit)]

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        with self._open():
            _refuse(validation.fault_in_name(by, "name of who answers"))
            _refuse(validation.too_large(body, "answer"))
            now_ms, rows = self._clock.now_ms(), self._tables.rows
            before = rows.items.get(item)
            after = inbox_rules.answered(before, item, digest, body, by, now_ms)
            if after is not before:
                rows.items[item] = after
                rows.runs[after.run] = rules.resolved(rows.runs[after.run], now_ms)
                self._wake()
            return after

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents under their digests."""
        named = [(blobs.digest(raw), raw) for raw in contents]
        with self._open():
            for _, raw in named:
                _refuse(validation.too_large_for_a_blob(raw))
            now_ms, kept = self._clock.now_ms(), self._tables.blobs
            for name, raw in named:
                blob = kept.setdefault(name, Blob(b"", now_ms))
                blob.packed = blob.packed or blobs.pack(raw)
                if blob.put_ms < now_ms - rules.BLOB_GRACE_MS // 4:
                    # The caller is about to refer to this blob, so pruning must spare it a while longer.
                    blob.put_ms = now_ms
            return [name for name, _ in named]

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        with self._open():
            found = {}
            for name in digests:
                blob = self._tables.blobs.get(name)
                if blob is None:
                    raise Corrupt(f"blob {name.hex()} is missing", remedy="Restore the store from a backup")
                found[name] = blobs.unpack(name, blob.packed)
            return found

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something has happened since the last call, or until the timeout."""
        with self._open():
            # Each waiter compares with what it saw itself, so the first to wake does not hide it from others.
            seen = self._seen
            woken = self._changed.wait_for(lambda: self._happened != seen, max(0.0, timeout_seconds))
            self._seen = self._happened
            return woken

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output came or a run ended since the last call, or until the timeout."""
        with self._open():
            seen = self._read_so_far
            woken = self._changed.wait_for(lambda: self._emitted != seen, max(0.0, timeout_seconds))
            self._read_so_far = self._emitted
            return woken

    def close(self) -> None:
        """Wake all waiters; there is nothing else to release."""
        with self._changed:
            self._wake()

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return nothing: a memory URL has no risks to accept."""
        return {}

    def migrate(self) -> tuple[int, int]:
        """Return the only version, twice: nothing is ever migrated."""
        with self._open():
            return VERSION, VERSION

    def stats(self) -> Stats:
        """Measure the store."""
        with self._open():
            return maintenance.measured(self._tables)

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        with self._open():
            return maintenance.faults(self._tables, progress)

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove old journals, expired runs and blobs that nothing refers to."""
        with self._open():
            return maintenance.prune(self._tables, ended_before_ms, forget_before_ms, self._clock.now_ms())

    # Inside the lock ----------------------------------------------------------------------------

    @contextmanager
    def _open(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise StoreUnsafe(
                "this store was opened by another process and came here by fork",
                remedy="Open the store after the fork",
            )
        with self._changed:
            yield

    def _wake(self) -> None:
        self._happened += 1
        self._emitted += 1
        self._changed.notify_all()

    def _committed(self, commit: Commit) -> Verdict:
        verdict, is_written, wakes = commit_rules.write(
            self._tables.rows, self._tables.blobs, commit, self._clock.now_ms()
        )
        if is_written:
            self._tables.journals[commit.run].extend(commit.records)
            if wakes:
                self._wake()
            elif rules.emits(commit):
                self._emitted += 1
                self._changed.notify_all()
        return verdict

    def _ended(self, lease: SessionLease, cause: Cause, evidence: Evidence | None) -> Session:
        ended = leases.end(self._tables, self._clock, lease, cause, evidence)
        self._wake()
        return ended


def _refuse(fault: NineLivesError | None) -> None:
    if fault is not None:
        raise fault
