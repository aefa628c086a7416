"""The members that all stores have in common: they check what they are given and call the store's modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, NineLivesError, UnknownRun, UsageError
from ninelives.core.model.capsule import Capsule, Changes, Imported, KeyPage, Move
from ninelives.core.model.counter import Counter, Counts, RunCount
from ninelives.core.model.document import HALTS, Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import counting, documents, validation
from ninelives.core.values import blobs
from ninelives.store import WHOLE, Fault, Progress, Pruned, Sample, VerifiedPart
from ninelives.stores.shared import creation, inbound, selection, walk
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.shared.pool import ConnectionPool
from ninelives.stores.shared.rows import texts
from ninelives.stores.shared.selection import Wanted
from ninelives.stores.shared.sessions import Ending
from ninelives.stores.shared.tables import OpenTransaction, Tables

Tx = TypeVar("Tx", bound=OpenTransaction)
Answer = TypeVar("Answer")
Created = list[RunRow | UsageError]
Tx_contra = TypeVar("Tx_contra", contravariant=True)


class KeepsSessions(Protocol):
    """The sessions of one store, as one process sees them."""

    def register(self, new: NewSession) -> Session: ...
    def renew(self, session: str, counts: str) -> Session: ...
    def end(self, given: Mapping[str, Ending] | None) -> list[Session]: ...
    def find(self, session: str) -> Session | None: ...
    def live(self) -> list[Session]: ...


class ReadsJournals(Protocol[Tx_contra]):
    """Reading journals. `read_journals` may raise Corrupt: they are then read one by one."""

    def read_journal(self, tx: Tx_contra, run_id: str, since: int | None) -> Journal: ...
    def read_journals(self, tx: Tx_contra, names: Sequence[str]) -> Sequence[Journal | NineLivesError]: ...
    def read_news(self, tx: Tx_contra, seen: Mapping[str, int]) -> list[News]: ...
    def read_capsule(self, tx: Tx_contra, run_id: str) -> Capsule: ...


class KeepsLog(Protocol[Tx_contra]):
    """The recovery log."""

    def append(self, tx: Tx_contra, new: Sequence[NewEntry]) -> None: ...
    def read(self, tx: Tx_contra, run: str | None, below: int, limit: int) -> list[LogEntry]: ...


class FindsRows(Protocol[Tx_contra]):
    """Runs, keys, inbox items, blobs, documents and counters, by name. Most read with one statement.

    `put_blobs` gets all contents, and packed those that were not known just before. `save_document` returns
    False when another process has created the document meanwhile. `read_counters` returns the counters, the
    counts of live sessions, and how many runs there are, all of one moment.
    """

    def find_runs(self, tx: Tx_contra, names: Sequence[str]) -> Mapping[str, RunRow]: ...
    def list_runs(self, tx: Tx_contra, query: RunQuery) -> list[RunRow]: ...
    def read_keys(self, tx: Tx_contra, keys: Sequence[str]) -> Mapping[str, Key]: ...
    def list_items(
        self, tx: Tx_contra, run: str | None, item: str | None, limit: int, *, answered: bool
    ) -> Sequence[Item]: ...
    def known_blobs(self, tx: Tx_contra, digests: Sequence[bytes]) -> Collection[bytes]: ...
    def read_blobs(self, tx: Tx_contra, digests: Sequence[bytes]) -> Mapping[bytes, bytes]: ...
    def put_blobs(
        self, tx: Tx_contra, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]
    ) -> None: ...
    def find_document(self, tx: Tx_contra, name: str) -> Document | None: ...
    def list_documents(self, tx: Tx_contra, prefix: str, after: str, limit: int) -> list[Document]: ...
    def save_document(self, tx: Tx_contra, document: Document) -> bool: ...
    def remove_document(self, tx: Tx_contra, name: str) -> None: ...
    def read_changes(self, tx: Tx_contra, cursor: str, limit: int) -> Changes: ...
    def list_keys(self, tx: Tx_contra, cursor: str, limit: int) -> KeyPage: ...
    def count_gauges(self, tx: Tx_contra) -> Gauges: ...

    def add_counts(self, tx: Tx_contra, counts: Counts) -> None: ...
    def read_counters(self, tx: Tx_contra) -> tuple[Counts, Sequence[str], Sequence[RunCount]]: ...
    def count_runs(self, tx: Tx_contra) -> Sequence[RunCount]: ...


class _Documents(NamedTuple):
    """The documents of one transaction."""

    find: Callable[[str], Document | None]
    write: Callable[[str, bytes, int], object]


class CheckedStore(ABC, Generic[Tx]):
    """A store, except for what only itself knows: transactions, claims, sessions, commits, wake-ups.

    `ninelives.store.Store` says what each method means.
    """

    _journals: ReadsJournals[Tx]
    _log: KeepsLog[Tx]
    _lookups: FindsRows[Tx]
    _open_tables: Callable[[Tx], Tables]
    _sessions: KeepsSessions
    _sections: walk.Sections
    _migrated: tuple[int, int]
    """The schema versions before and after this object opened the store."""
    _most = 2**62
    """The largest limit that the store can take."""

    @abstractmethod
    def _require(self) -> None:
        """Check that this process may use the store. Raises StoreUnsafe, StoreUnavailable, StoreBroken."""

    @abstractmethod
    def _read(self, work: Callable[[Tx], Answer]) -> Answer:
        """Run a reading transaction."""

    @abstractmethod
    def _write(self, work: Callable[[Tx], Answer]) -> Answer:
        """Run a writing transaction; durable when this returns."""

    @abstractmethod
    def _create(self, tx: Tx, new: Sequence[NewRun], session: str | None) -> Created:
        """Create runs, and give those that are due to the session, if any."""

    @abstractmethod
    def _claim(self, session: str, limit: int, wanted: Wanted) -> Claims:
        """Claim due runs for a session."""

    @abstractmethod
    def _prune(self, limits: Limits) -> Pruned:
        """Remove what is older than the limits."""

    def _peek(self, work: Callable[[Tx], Answer]) -> Answer:
        """Read with one statement."""
        return self._read(work)

    @abstractmethod
    def now_ms(self) -> int:
        """Return the store's wall clock."""

    def read_clock(self) -> int:
        """Return the store's wall clock, as it is now."""
        return self.now_ms()

    @property
    def lossy(self) -> str | None:
        """Return None: this store keeps everything that it acknowledged."""
        return None

    @property
    def risks(self) -> Mapping[str, str]:
        """Return nothing: the URL has no risks to accept."""
        return {}

    def migrate(self) -> tuple[int, int]:
        """Return the schema versions before and after opening: opening migrates."""
        self._require()
        return self._migrated

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        self._require()
        return walk.verify(self._read, self._sections, progress)

    def verify_part(self, position: str = "", *, limit: int = 100, sample: Sample = WHOLE) -> VerifiedPart:
        """Read and check the next part."""
        self._require()
        return walk.verify_part(self._read, self._sections, position, limit, sample)

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> Created:
        """Create runs, each with its record 0."""
        return self._write(lambda tx: self._create(tx, new, session))

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None."""
        return self._peek(lambda tx: self._lookups.find_runs(tx, [run]).get(run))

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        if not selection.is_possible(query):
            return []
        wanted = replace(query, limit=self._clamped(query.limit))
        return self._peek(lambda tx: self._lookups.list_runs(tx, wanted))

    def claim_runs(
        self,
        session: str,
        limit: int,
        agents: Mapping[str, int],
        *,
        queues: Sequence[str] = ("default",),
        host: str | None = None,
        only: str | None = None,
        solo: bool = False,
    ) -> Claims:
        """Claim due runs for the session."""
        wanted = Wanted(agents, queues, host, only, solo=solo)
        return self._claim(session, self._clamped(limit), wanted)

    # Sessions and the recovery log --------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and hold its lock, if the store has locks."""
        self._require()
        _refuse(validation.fault_in_session(new))
        return self._sessions.register(new)

    def renew_session(self, session: str, *, counts: Sequence[Counter] = ()) -> Session:
        """Renew the lease of a session that still has one."""
        return self._sessions.renew(session, self._written(counts))

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
        counts: Mapping[str, Sequence[Counter]] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        self._require()
        seen, done = evidence or {}, counts or {}
        _refuse(validation.fault_in_evidence(seen))
        if sessions is None:
            return self._sessions.end(None)
        return self._sessions.end(
            {name: Ending(cause, seen.get(name), self._written(done.get(name, ()))) for name in sessions}
        )

    def _written(self, counters: Sequence[Counter]) -> str:
        _refuse(counting.fault_in_counters(counters))
        return counting.write_counts(counting.counts_of(counters))

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._sessions.find(session)

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return self._sessions.live()

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        _refuse(validation.fault_in_log(new))
        self._write(lambda tx: self._append(tx, new))

    def _append(self, tx: Tx, new: Sequence[NewEntry]) -> None:
        self._log.append(tx, new)
        self._lookups.add_counts(tx, counting.of_entries(new, tx.now_ms))

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first."""
        below, most = self._most if before is None else min(before, self._most), self._clamped(limit)
        if run is not None and not validation.is_text(run):
            return []
        return self._peek(lambda tx: self._log.read(tx, run, below, most))

    # Journals and keys --------------------------------------------------------------------------

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, verified."""
        return self._read(lambda tx: self._journals.read_journal(tx, run, since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, verified."""
        try:
            return self._read(lambda tx: list(self._journals.read_journals(tx, runs)))
        except Corrupt:
            return [self._load(run) for run in runs]

    def _load(self, run: str) -> Journal | NineLivesError:
        try:
            return self.load_journal(run)
        except (Corrupt, UnknownRun) as error:
            return error

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return the news of runs whose counter has changed."""
        return self._read(lambda tx: self._journals.read_news(tx, seen))

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""
        wanted = texts(dict.fromkeys(keys))
        return self._peek(lambda tx: dict(self._lookups.read_keys(tx, wanted)))

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Append a signal to a run's queue and wake it."""
        _refuse(validation.fault_in_name(name, "signal name"))
        _refuse(validation.fault_in_name(id, "signal id") if id is not None else None)
        _refuse(validation.too_large(body, "signal", run))
        return self._write(
            lambda tx: inbound.send_signal(tx, self._open_tables(tx), run, name, body, id or "")
        )

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        return self._write(lambda tx: inbound.control(tx, self._open_tables(tx), run, control))

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return inbox items, oldest first."""
        most = self._clamped(limit)
        if most == 0 or not all(validation.is_text(name) for name in (run, item) if name is not None):
            return []
        found = self._peek(lambda tx: self._lookups.list_items(tx, run, item, most, answered=answered))
        fitting = (
            one for one in found if run in (None, one.run) and (answered or one.state is ItemState.OPEN)
        )
        return list(fitting)[:most]

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        _refuse(validation.fault_in_name(by, "name of a person") or validation.too_large(body, "answer"))
        return self._write(lambda tx: inbound.answer(tx, self._open_tables(tx), item, digest, body, by))

    # Blobs --------------------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents under their digests."""
        digests, named = [], {}
        for content in contents:
            _refuse(validation.too_large_for_a_blob(content))
            digests.append(blobs.digest(content))
            named[digests[-1]] = content
        known = self._peek(lambda tx: self._lookups.known_blobs(tx, list(named)))
        packed = {digest: blobs.pack(content) for digest, content in named.items() if digest not in known}
        self._write(lambda tx: self._lookups.put_blobs(tx, named, packed))
        return digests

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        wanted = list(dict.fromkeys(digests))
        found = self._peek(lambda tx: self._lookups.read_blobs(tx, wanted)) if wanted else {}
        for digest in wanted:
            if digest not in found:
                raise Corrupt(f"blob {digest.hex()} is missing", remedy="Restore the store from a backup")
        return {digest: blobs.unpack(digest, found[digest]) for digest in wanted}

    # Capsules -----------------------------------------------------------------------------------

    def export_run(self, run: str) -> Capsule:
        """Return everything that is stored of a run."""
        return self._read(lambda tx: self._journals.read_capsule(tx, run))

    def import_runs(self, capsules: Sequence[Capsule], *, move: str = "") -> list[Imported]:
        """Create runs from capsules, all or none."""
        if move:
            return self._write(
                lambda tx: creation.arrive(tx, self._open_tables(tx), self._documents(tx), capsules, move)
            )
        return self._write(lambda tx: creation.take_in(tx, self._open_tables(tx), capsules, hold=True))

    def import_keys(self, keys: Sequence[Key]) -> None:
        """Take in business keys without runs, all or none."""
        self._write(lambda tx: creation.take_in_keys(self._open_tables(tx), keys))

    def depart_runs(self, runs: Sequence[str], move: Move) -> list[RunRow]:
        """Fence runs and send them on their way to another store."""
        return self._write(
            lambda tx: inbound.depart(tx, self._open_tables(tx), self._documents(tx), runs, move)
        )

    def settle_move(self, move: str, *, arrived: bool) -> list[RunRow]:
        """End a move."""
        return self._write(
            lambda tx: inbound.settle_move(
                tx, self._open_tables(tx), self._documents(tx), move, arrived=arrived
            )
        )

    def _documents(self, tx: Tx) -> _Documents:
        return _Documents(
            lambda name: self._lookups.find_document(tx, name),
            lambda name, body, version: self._replace(tx, name, body, version, ()),
        )

    # Documents ----------------------------------------------------------------------------------

    def read_documents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Document]:
        """Return documents by name."""
        most = self._clamped(limit)
        if most == 0 or not (validation.is_text(prefix) and validation.is_text(after)):
            return []
        return self._peek(lambda tx: self._lookups.list_documents(tx, prefix, after, most))

    def write_document(
        self, name: str, body: bytes | None, *, version: int, counts: Sequence[Counter] = ()
    ) -> Document | None:
        """Write or remove a document that has this version."""
        _refuse(documents.fault_in_write(name, body, version) or counting.fault_in_counters(counts))
        return self._write(lambda tx: self._replace(tx, name, body, version, counts))

    def _replace(
        self, tx: Tx, name: str, body: bytes | None, version: int, counts: Sequence[Counter]
    ) -> Document | None:
        known = self._lookups.find_document(tx, name)
        after = documents.written(known, name, body, version, tx.now_ms)
        if after is known:
            return after
        if after is None:
            self._lookups.remove_document(tx, name)
        elif not self._lookups.save_document(tx, after):
            raise documents.stale(name, version, 1)
        # A halt must reach every worker at once, and its end the runs that wait for it.
        tx.wakes = tx.wakes or name == HALTS
        self._lookups.add_counts(tx, counting.counts_of(counts))
        return after

    def prune(
        self,
        *,
        ended_before_ms: int,
        forget_before_ms: int = 0,
        log_before_ms: int = 0,
        agents: Mapping[str, int] | None = None,
    ) -> Pruned:
        """Remove what is no longer needed, in small transactions."""
        limits = Limits(
            ended_before_ms=ended_before_ms,
            forget_before_ms=forget_before_ms,
            log_before_ms=log_before_ms,
            agents=agents or {},
        )
        return self._prune(limits)

    def gauges(self) -> Gauges:
        """Count what metrics show."""
        return self._read(self._lookups.count_gauges)

    # Counters -----------------------------------------------------------------------------------

    def read_counters(self) -> list[Counter]:
        """Return all counters, of one moment."""
        return self._read(lambda tx: counting.totals(*self._lookups.read_counters(tx)))

    def count_runs(self) -> list[RunCount]:
        """Count the runs of each agent, queue and state."""
        return self._read(lambda tx: list(self._lookups.count_runs(tx)))

    # Changes ------------------------------------------------------------------------------------

    def changed_runs(self, cursor: str = "", *, limit: int = 1000) -> Changes:
        """Return runs that may have changed since the cursor."""
        return self._read(lambda tx: self._lookups.read_changes(tx, cursor, max(1, self._clamped(limit))))

    def list_keys(self, cursor: str = "", *, limit: int = 1000) -> KeyPage:
        """Return a part of all business keys."""
        return self._read(lambda tx: self._lookups.list_keys(tx, cursor, max(1, self._clamped(limit))))

    def _clamped(self, limit: int) -> int:
        return min(max(0, limit), self._most)


class ServerStore(CheckedStore[Tx]):
    """A store on a server, with a pool of connections to it."""

    _pool: ConnectionPool[Any]

    def _require(self) -> None:
        self._pool.require()

    def now_ms(self) -> int:
        """Return the server's wall clock, as learnt from it lately."""
        self._pool.require()
        return self._pool.leases.clock.now_ms() or self.read_clock()

    def read_clock(self) -> int:
        """Ask the server for its wall clock."""
        return self._pool.leases.clock.read(lambda: self._read(lambda tx: tx.now_ms))


def _refuse(fault: NineLivesError | None) -> None:
    if fault is not None:
        raise fault
