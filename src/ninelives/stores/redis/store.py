"""The store for several machines on Redis or Valkey: one server, any processes on any hosts.

`ninelives.store.Store` says what each method means; `server.pool` how it survives lost connections;
`stores.shared.commit_rules` and `core` what happens to rows; `tables` how the server's rows get there.
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
from ninelives.stores.redis import claims as ownership
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
    """A store under one prefix of a server; implements `Store` and `Maintenance`."""

    def __init__(self, url: str, *, clock: Clock | None = None, known: str = "") -> None:
        self._address = parse(url)
        self._clock = clock
        self._pool = Pool(self._address, clock)
        self._pool.begin()
        if known:
            self._pool.require_same(known.encode())  # before a new one could be created
        self._migrated = self._pool.read(schema.open_version)
        names = self._pool.names
        (identity,) = self._pool.read(lambda tx: tx.ask([(b"HGET", names.store, b"id")]))
        names.identity = identity or b""
        self._is_closed = threading.Event()
        self._workers = WakeupList(names.work, names.tag, self._pool.connect)
        self._readers = WakeupList(names.output, names.tag, self._pool.connect)

    @property
    def url(self) -> str:
        """Return the URL without secrets."""
        return self._address.shown

    @property
    def identity(self) -> str:
        """Return the store's id, given when it was created."""
        return self._pool.names.identity.decode()

    @property
    def lossy(self) -> str | None:
        """Why the server may lose what it acknowledges, if the URL accepts that; as it last reported."""
        return self._pool.server.lossy

    def now_ms(self) -> int:
        """Return the server's wall clock, as learnt from it lately."""
        self._pool.require()
        return self._pool.witness.clock.now_ms() or self.read_clock()

    def read_clock(self) -> int:
        """Ask the server for its wall clock."""
        return self._pool.witness.clock.read(lambda: self._pool.read(lambda tx: tx.now_ms))

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs, each with its record 0."""
        return self._pool.write(lambda tx: ownership.create(tx, new, session))

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None."""
        return self._pool.read(lambda tx: read_runs(tx, [run]).get(run))

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        return self._pool.read(lambda tx: run_listing.list_runs(tx, query))

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session."""
        self._pool.require()
        fault = validation.fault_in_session(new)
        if fault is not None:
            raise fault
        sent_ms = self._pool.witness.now_ms()
        session = self._pool.write(lambda tx: leases.register(tx, new))
        self._pool.witness.renewed(session, sent_ms)
        self._pool.lineage.sessions.add(session.id)
        return session

    def renew_session(self, session: str) -> Session:
        """Renew the lease of a session that still has one."""
        sent_ms = self._pool.witness.now_ms()
        renewed = self._pool.write(lambda tx: leases.renew(tx, session))
        self._pool.witness.renewed(renewed, sent_ms)
        return renewed

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        self._pool.require()
        seen = evidence or {}
        fault = validation.fault_in_evidence(seen)
        if fault is not None:
            raise fault
        endings = None if sessions is None else {name: (cause, seen.get(name)) for name in sessions}
        ended = self._pool.write(lambda tx: leases.end(tx, endings))
        self._pool.lineage.sessions.difference_update(one.id for one in ended)
        return ended

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._pool.read(lambda tx: next(iter(leases.read(tx, [session])), None))

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return self._pool.read(leases.live)

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        fault = validation.fault_in_log(new)
        if fault is not None:
            raise fault
        self._pool.write(lambda tx: recovery_log.append(tx, new))

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first."""
        return self._pool.read(lambda tx: recovery_log.read(tx, run, before, limit))

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
        """Claim due runs for the session; an idle worker only reads."""
        wanted = ownership.Wanted(agents, queues, host, alone=alone and only is None)
        most = _clamped(limit)
        claims = self._pool.write(lambda tx: ownership.claim(tx, session, most, wanted, only))
        self._pool.lineage.claimed(claims.runs)
        return claims

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, verified."""
        return self._pool.read(lambda tx: journals.read_journal(tx, run, since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, verified."""
        return self._pool.read(lambda tx: journals.read_journals(tx, runs))

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return the news of runs whose counter has changed."""
        return self._pool.read(lambda tx: journals.read_news(tx, seen))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return self._pool.write(lambda tx: inbound.salvage(tx, run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        self._pool.require()
        return commits.commit(self._pool, batch, self._clock.now_ms() if self._clock is not None else None)

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""
        wanted = texts(dict.fromkeys(keys))

        def work(tx: Transaction) -> dict[str, Key]:
            found = tx.fields([(tx.names.keys, key.encode()) for key in wanted])
            pairs = zip(wanted, found, strict=True)
            return {key: encoding.key_of(raw) for key, raw in pairs if raw is not None}

        return self._pool.read(work)

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
        return self._pool.write(lambda tx: inbound.send_signal(tx, run, name, body, id or ""))

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        return self._pool.write(lambda tx: inbound.control(tx, run, control))

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return inbox items, oldest first."""
        most = _clamped(limit)
        return self._pool.read(lambda tx: inbound.list_inbox(tx, run, item, answered=answered, limit=most))

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        fault = validation.fault_in_name(by, "name of who answers") or validation.too_large(body, "answer")
        if fault is not None:
            raise fault
        return self._pool.write(lambda tx: inbound.answer(tx, item, digest, body, by))

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents under their digests."""
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
                # The caller is about to refer to this blob, so pruning must spare it a while longer.
                if put_ms is None or int(put_ms) < tx.now_ms - run_rules.BLOB_GRACE_MS // 4:
                    tx.do(b"HSET", names.blobs, digest, tx.now_ms)

        self._pool.write(work)
        return [digest for digest, _ in named]

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        wanted = list(dict.fromkeys(digests))
        names = self._pool.names
        asked = [(b"GET", names.blob(digest)) for digest in wanted]
        found = self._pool.read(lambda tx: tx.ask(asked)) if asked else []
        for digest, packed in zip(wanted, found, strict=True):
            if packed is None:
                raise Corrupt(f"blob {digest.hex()} is missing", remedy="Restore the store from a backup")
        return {digest: blobs.unpack(digest, packed) for digest, packed in zip(wanted, found, strict=True)}

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._pool.require()
        return self._workers.wait(max(0.0, timeout_seconds))

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        self._pool.require()
        return self._readers.wait(max(0.0, timeout_seconds))

    def close(self) -> None:
        """Close the connections."""
        if self._is_closed.is_set() or not self._pool.is_ours:
            return  # connections inherited by fork belong to the parent
        self._is_closed.set()
        for part in (self._workers, self._readers, self._pool):
            part.close()

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return what is unsafe about the server, as reported when the newest connection was opened."""
        return self._pool.server.risks

    def migrate(self) -> tuple[int, int]:
        """Return the versions before and after this process opened the store."""
        self._pool.require()
        return self._migrated

    def stats(self) -> Stats:
        """Measure the store."""
        return self._pool.read(maintenance.measure)

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        self._pool.require()
        return maintenance.verify(self._pool, progress)

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove what is no longer needed, in small transactions."""
        return pruning.prune(self._pool, ended_before_ms, forget_before_ms, run_rules.BLOB_GRACE_MS)


def _clamped(limit: int) -> int:
    return min(max(0, limit), _MOST)
