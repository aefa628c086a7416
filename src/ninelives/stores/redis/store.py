"""The store of many machines on Redis or Valkey: one server, any number of processes on any number of hosts.

What each method means is said in `ninelives.store.Store`; how it survives lost connections, in `lines`; what
happens to rows, in `stores.shared.commit_rules` and `core`; how the server's rows get there, in `tables`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, NineLivesError, UsageError
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import run_rules, validation
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.redis import (
    claims as ownership,
)
from ninelives.stores.redis import (
    commits,
    encoding,
    inbound,
    journals,
    maintenance,
    pruning,
    recovery_log,
    run_listing,
)
from ninelives.stores.redis import sessions as leases
from ninelives.stores.redis.run_rows import read_runs, texts
from ninelives.stores.redis.server import schema
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.server.wakeups import WakeupList
from ninelives.stores.redis.transaction import Transaction

_MOST = 2**31


class RedisStore:
    """A store under one prefix of a server. Both `Store` and `Maintenance`."""

    def __init__(self, url: str, *, clock: Clock | None = None, known: str = "") -> None:
        self._address = parse(url)
        self._clock = clock
        self._lines = Pool(self._address, clock)
        self._lines.begin()
        if known:
            self._lines.require_same(known.encode())  # before a new one could be made
        self._migrated = self._lines.read(schema.open_version)
        names = self._lines.names
        (identity,) = self._lines.read(lambda tx: tx.ask([(b"HGET", names.store, b"id")]))
        names.identity = identity or b""
        self._is_closed = threading.Event()
        self._workers = WakeupList(names.work, names.tag, self._lines.connect)
        self._readers = WakeupList(names.output, names.tag, self._lines.connect)

    @property
    def url(self) -> str:
        """Name the store for people, without secrets."""
        return self._address.shown

    @property
    def identity(self) -> str:
        """Name this store, as it was named when it was made."""
        return self._lines.names.identity.decode()

    @property
    def lossy(self) -> str | None:
        """Say why what the server acknowledges may be lost, if the URL accepts that; as it last said."""
        return self._lines.server.lossy

    def now_ms(self) -> int:
        """Return the server's wall clock."""
        self._lines.require()
        return self._lines.read(lambda tx: tx.now_ms)

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs, each with its record 0."""
        return self._lines.write(lambda tx: ownership.create(tx, new, session))

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None."""
        return self._lines.read(lambda tx: read_runs(tx, [run]).get(run))

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        return self._lines.read(lambda tx: run_listing.list_runs(tx, query))

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session."""
        self._lines.require()
        fault = validation.fault_in_session(new)
        if fault is not None:
            raise fault
        sent_ms = self._lines.witness.now_ms()
        session = self._lines.write(lambda tx: leases.register(tx, new))
        self._lines.witness.renewed(session, sent_ms)
        self._lines.lineage.sessions.add(session.id)
        return session

    def renew_session(self, session: str) -> Session:
        """Renew the lease of a session that still has one."""
        sent_ms = self._lines.witness.now_ms()
        renewed = self._lines.write(lambda tx: leases.renew(tx, session))
        self._lines.witness.renewed(renewed, sent_ms)
        return renewed

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        self._lines.require()
        seen = evidence or {}
        fault = validation.fault_in_evidence(seen)
        if fault is not None:
            raise fault
        endings = None if sessions is None else {name: (cause, seen.get(name)) for name in sessions}
        ended = self._lines.write(lambda tx: leases.end(tx, endings))
        self._lines.lineage.sessions.difference_update(one.id for one in ended)
        return ended

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._lines.read(lambda tx: next(iter(leases.read(tx, [session])), None))

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return self._lines.read(leases.live)

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        fault = validation.fault_in_log(new)
        if fault is not None:
            raise fault
        self._lines.write(lambda tx: recovery_log.append(tx, new))

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first."""
        return self._lines.read(lambda tx: recovery_log.read(tx, run, before, limit))

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
        """Give runs that are due to the session; an idle worker only reads."""
        wanted = ownership.Wanted(agents, queues, host, alone=alone and only is None)
        most = _clamped(limit)
        claims = self._lines.write(lambda tx: ownership.claim(tx, session, most, wanted, only))
        self._lines.lineage.claimed(claims.runs)
        return claims

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return what is durable of a run, verified."""
        return self._lines.read(lambda tx: journals.read_journal(tx, run, since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, verified."""
        return self._lines.read(lambda tx: journals.read_journals(tx, runs))

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return what is new of runs whose counter has moved."""
        return self._lines.read(lambda tx: journals.read_news(tx, seen))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Go on from the last good prefix of a damaged journal."""
        return self._lines.write(lambda tx: inbound.salvage(tx, run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        self._lines.require()
        return commits.commit(self._lines, batch, self._clock.now_ms() if self._clock is not None else None)

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""
        wanted = texts(dict.fromkeys(keys))

        def work(tx: Transaction) -> dict[str, Key]:
            found = tx.fields([(tx.names.keys, key.encode()) for key in wanted])
            pairs = zip(wanted, found, strict=True)
            return {key: encoding.key_of(raw) for key, raw in pairs if raw is not None}

        return self._lines.read(work)

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
        return self._lines.write(lambda tx: inbound.send_signal(tx, run, name, body, id or ""))

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        return self._lines.write(lambda tx: inbound.control(tx, run, control))

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return inbox items, oldest first."""
        most = _clamped(limit)
        return self._lines.read(lambda tx: inbound.list_inbox(tx, run, item, answered=answered, limit=most))

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        fault = validation.fault_in_name(by, "name of who answers") or validation.too_large(body, "answer")
        if fault is not None:
            raise fault
        return self._lines.write(lambda tx: inbound.answer(tx, item, digest, body, by))

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Keep contents under their digests."""
        named = [(blobs.digest(content), content) for content in contents]
        fault = next(filter(None, (validation.too_large_for_a_blob(content) for _, content in named)), None)
        if fault is not None:
            raise fault

        def work(tx: Transaction) -> None:
            names, found = tx.names, dict(named)
            known = tx.fields([(names.blobs, digest) for digest in found])
            for digest, put_ms in zip(found, known, strict=True):
                if put_ms is None:
                    tx.do(b"SET", names.blob(digest), blobs.pack(found[digest]))
                # Who puts a known one is about to refer to it.
                if put_ms is None or int(put_ms) < tx.now_ms - run_rules.BLOB_GRACE_MS // 4:
                    tx.do(b"HSET", names.blobs, digest, tx.now_ms)

        self._lines.write(work)
        return [digest for digest, _ in named]

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        wanted = list(dict.fromkeys(digests))
        names = self._lines.names
        asked = [(b"GET", names.blob(digest)) for digest in wanted]
        found = self._lines.read(lambda tx: tx.ask(asked)) if asked else []
        for digest, packed in zip(wanted, found, strict=True):
            if packed is None:
                raise Corrupt(f"blob {digest.hex()} is missing", remedy="Restore the store from a backup")
        return {digest: blobs.unpack(digest, packed) for digest, packed in zip(wanted, found, strict=True)}

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened or the time is over."""
        self._lines.require()
        return self._workers.wait(max(0.0, timeout_seconds))

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until something may have been emitted, or a run ended, or the time is over."""
        self._lines.require()
        return self._readers.wait(max(0.0, timeout_seconds))

    def close(self) -> None:
        """Let go of the connections."""
        if self._is_closed.is_set() or not self._lines.is_ours:
            return  # what came here by fork is the parent's
        self._is_closed.set()
        for part in (self._workers, self._readers, self._lines):
            part.close()

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Say what is not safe about the server, as it said when the newest connection was opened."""
        return self._lines.server.risks

    def migrate(self) -> tuple[int, int]:
        """Return the versions before and after this process opened the store."""
        self._lines.require()
        return self._migrated

    def stats(self) -> Stats:
        """Measure the store."""
        return self._lines.read(maintenance.measure)

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        self._lines.require()
        return maintenance.verify(self._lines, progress)

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove what is no longer needed, in small transactions."""
        return pruning.prune(self._lines, ended_before_ms, forget_before_ms, run_rules.BLOB_GRACE_MS)


def _clamped(limit: int) -> int:
    return min(max(0, limit), _MOST)
