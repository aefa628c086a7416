"""The members that all stores have in common: they check what they are given and call the store's modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, NineLivesError, UnknownRun, UsageError
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import validation
from ninelives.core.values import blobs
from ninelives.stores.shared import inbound, selection
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
    def renew(self, session: str) -> Session: ...
    def end(self, given: Mapping[str, Ending] | None) -> list[Session]: ...
    def find(self, session: str) -> Session | None: ...
    def live(self) -> list[Session]: ...


class ReadsJournals(Protocol[Tx_contra]):
    """Reading journals. `read_journals` may raise Corrupt: they are then read one by one."""

    def read_journal(self, tx: Tx_contra, run_id: str, since: int | None) -> Journal: ...
    def read_journals(self, tx: Tx_contra, names: Sequence[str]) -> Sequence[Journal | NineLivesError]: ...
    def read_news(self, tx: Tx_contra, seen: Mapping[str, int]) -> list[News]: ...


class KeepsLog(Protocol[Tx_contra]):
    """The recovery log."""

    def append(self, tx: Tx_contra, new: Sequence[NewEntry]) -> None: ...
    def read(self, tx: Tx_contra, run: str | None, below: int, limit: int) -> list[LogEntry]: ...


class FindsRows(Protocol[Tx_contra]):
    """Runs, keys, inbox items and blobs, by name. Each reads with one statement.

    `put_blobs` gets all contents, and packed those that were not known just before.
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


class CheckedStore(ABC, Generic[Tx]):
    """A store, except for what only itself knows: transactions, claims, sessions, commits, wake-ups.

    `ninelives.store.Store` says what each method means.
    """

    _journals: ReadsJournals[Tx]
    _log: KeepsLog[Tx]
    _lookups: FindsRows[Tx]
    _open_tables: Callable[[Tx], Tables]
    _sessions: KeepsSessions
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

    def renew_session(self, session: str) -> Session:
        """Renew the lease of a session that still has one."""
        return self._sessions.renew(session)

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs."""
        self._require()
        seen = evidence or {}
        _refuse(validation.fault_in_evidence(seen))
        given = None if sessions is None else {name: (cause, seen.get(name)) for name in sessions}
        return self._sessions.end(given)

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._sessions.find(session)

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return self._sessions.live()

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log."""
        _refuse(validation.fault_in_log(new))
        self._write(lambda tx: self._log.append(tx, new))

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
