"""The store for several machines: one PostgreSQL database, any number of processes on any hosts.

`ninelives.store.Store` says what each method means; `server.pool` how it survives lost connections;
`stores.shared.commit_rules` and `core` what happens to rows; `tables` how the server's rows get there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, NineLivesError, UnknownRun, UsageError
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import run_rules, validation
from ninelives.core.values import blobs
from ninelives.store import Fault, Progress, Pruned, Stats
from ninelives.stores.postgres import claims, commits, inbound, journals, maintenance, recovery_log
from ninelives.stores.postgres.server import schema
from ninelives.stores.postgres.server.address import Address, parse
from ninelives.stores.postgres.server.death_watch import DeathWatch
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.postgres.server.wakeups import Channel, Notifications
from ninelives.stores.postgres.sessions import Sessions, may_act
from ninelives.stores.postgres.transaction import Transaction, decoding, runs_in, texts
from ninelives.stores.shared import rows

_MOST = 2**62


class PostgresStore:
    """A store in one schema of a database; implements `Store` and `Maintenance`."""

    def __init__(self, url: str, *, clock: Clock | None = None, known: str = "") -> None:
        self._address: Address = parse(url)
        self._clock = clock
        self._pool = Pool(self._address, clock)
        self._migrated, self._pool.identity = self._pool.prepare(partial(schema.open_or_make, known=known))
        self._sessions = Sessions(self._pool)
        self._deaths = DeathWatch(
            self._pool, self._sessions.ring, lambda: self.end_sessions(None, Cause.DIED)
        )
        self._waits_for_work = False
        self._work, self._output = (Channel(self._address.schema, name) for name in ("work", "output"))
        self._is_closed = threading.Event()
        door = self._pool.sql["open_door"].text
        self._workers = Notifications(self._work, self._pool.connect, door)
        self._readers = Notifications(self._output, self._pool.connect, door)

    @property
    def url(self) -> str:
        """Return the URL without secrets."""
        return self._address.shown

    @property
    def identity(self) -> str:
        """Return the store's id, given when its schema was created."""
        return self._pool.identity

    @property
    def lossy(self) -> str | None:
        """Return None: this store keeps everything that it acknowledged."""
        return None

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
        return self._pool.write(lambda tx: claims.create(tx, new, session), self._wake)

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None."""
        return runs_in(self._pool.ask("read_runs", (texts([run]),))).get(run)

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        names = (query.agent, query.session, query.parent, *query.labels, *query.labels.values())
        if not all(validation.is_text(name) for name in names if name is not None):
            return []  # no run can have such a name
        wanted = msgspec.to_builtins(query) | {
            "states": list(dict.fromkeys(query.states)),
            "labels": msgspec.json.encode(query.labels).decode(),
            "limit": _clamped(query.limit),
        }
        return list(runs_in(self._pool.ask(_listing(query), wanted)).values())

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and hold its lock."""
        self._pool.require()
        fault = validation.fault_in_session(new)
        if fault is not None:
            raise fault
        session = self._sessions.register(new, self._wake)
        self._watch()
        return session

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
        self._pool.require()
        seen = evidence or {}
        fault = validation.fault_in_evidence(seen)
        if fault is not None:
            raise fault
        endings = None if sessions is None else {name: (cause, seen.get(name)) for name in sessions}
        return self._sessions.end(endings, self._wake)

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._sessions.find(session)

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended."""
        return self._sessions.live()

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
        return recovery_log.read(self._pool.ask, run, before, _clamped(limit))

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
        wanted, most = claims.Wanted(agents, queues, host), _clamped(max(0, limit))

        def peek(tx: Transaction) -> tuple[Claims, int]:
            asked = tx.ask("read_sessions", (texts([session]),))
            seen = claims.peek(tx, wanted, alone=alone)
            may_act(tx, session, asked.fetchall())
            return seen, tx.now_ms

        if only is None:
            # Read before we write: an idle worker must cost the server next to nothing.
            seen, now_ms = self._pool.read(peek)
            if most == 0 or seen.next_due_ms is None or seen.next_due_ms > now_ms:
                return seen
        return self._pool.write(lambda tx: claims.claim(tx, session, most, wanted, only, alone=alone))

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return the durable part of a run, verified."""
        return self._pool.read(lambda tx: journals.read_journal(tx, run, since))

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return the current turns of many runs, verified."""
        try:
            return self._pool.read(lambda tx: journals.read_journals(tx, runs))
        except Corrupt:
            return [self._load(run) for run in runs]

    def _load(self, run: str) -> Journal | NineLivesError:
        try:
            return self.load_journal(run)
        except (Corrupt, UnknownRun) as error:
            return error

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return the news of runs whose counter has changed."""
        return self._pool.read(lambda tx: journals.read_news(tx, seen))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return self._pool.write(lambda tx: inbound.salvage(tx, run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        now_ms = None if self._clock is None else self._clock.now_ms()
        return commits.commit(self._pool, batch, now_ms, self._channels, self._wake)

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""
        found = self._pool.ask("read_keys", (texts(keys),))
        with decoding("a key"):
            by_name = {row[0]: rows.key_of(row) for row in found}
        return {key: by_name[key] for key in keys if key in by_name}

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
        return self._pool.write(lambda tx: inbound.send_signal(tx, run, name, body, id or ""), self._wake)

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry."""
        return self._pool.write(lambda tx: inbound.control(tx, run, control), self._wake)

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return inbox items, oldest first."""
        if item is not None:
            found = self._pool.ask("read_items", (texts([item]),))
        elif run is not None:
            found = self._pool.ask("items_of_runs", (texts([run]),))
        else:
            found = self._pool.ask("list_inbox" if answered else "list_open_items", (_clamped(limit),))
        with decoding("an inbox item", run):
            items = [rows.item_of(row) for row in found]
        fitting = [
            one for one in items if run in (None, one.run) and (answered or one.state is ItemState.OPEN)
        ]
        return fitting[: _clamped(limit)]

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run."""
        fault = validation.fault_in_name(by, "name of who answers") or validation.too_large(body, "answer")
        if fault is not None:
            raise fault
        return self._pool.write(lambda tx: inbound.answer(tx, item, digest, body, by), self._wake)

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents under their digests."""
        named = [(blobs.digest(content), content) for content in contents]
        fault = next(filter(None, (validation.too_large_for_a_blob(content) for _, content in named)), None)
        if fault is not None:
            raise fault
        digests = [digest for digest, _ in named]
        known = {row[0] for row in self._pool.ask("known_blobs", (digests,))}
        packed = sorted({(digest, blobs.pack(raw)) for digest, raw in named if digest not in known})

        def work(tx: Transaction) -> None:
            if known:
                tx.do("touch_blobs", (tx.now_ms, sorted(known), tx.now_ms - run_rules.BLOB_GRACE_MS // 4))
            tx.many("insert_blob", [(digest, content, tx.now_ms) for digest, content in packed])

        self._pool.write(work)
        return digests

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents, verified."""
        wanted = list(digests)
        found: dict[bytes, bytes] = dict(self._pool.ask("read_blobs", (wanted,)))
        for digest in wanted:
            if digest not in found:
                raise Corrupt(f"blob {digest.hex()} is missing", remedy="Restore the store from a backup")
        return {digest: blobs.unpack(digest, found[digest]) for digest in wanted}

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._waits_for_work = True
        self._watch()
        return self._wait(self._workers, timeout_seconds)

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        return self._wait(self._readers, timeout_seconds)

    def _wait(self, wake_ups: Notifications, timeout_seconds: float) -> bool:
        self._pool.require()
        if not self._pool.is_direct:  # LISTEN does not work through a pooler: the caller polls instead
            self._is_closed.wait(max(0.0, timeout_seconds))
            return False
        return wake_ups.wait(max(0.0, timeout_seconds))

    def close(self) -> None:
        """Close the connections."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        for part in (self._deaths, self._workers, self._readers, self._sessions, self._pool):
            part.close()

    def _watch(self) -> None:
        """Watch for deaths once this object has a session and a waiting thread, in whichever order."""
        if self._waits_for_work and self._sessions.has_own:
            self._deaths.watch()

    def _channels(self, work: bool, output: bool) -> tuple[list[str], list[int]]:
        channels = [self._work] * work + [self._output] * (work or output)
        if not self._pool.is_direct:
            return [], []
        return [one.name for one in channels], [one.door for one in channels]

    def _wake(self, tx: Transaction) -> None:
        channels, doors = self._channels(tx.wakes, tx.emits)
        if channels:
            tx.do("wake", (channels, doors))

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return what is unsafe about the server, as reported when the newest connection was opened."""
        return self._pool.risks

    def migrate(self) -> tuple[int, int]:
        """Return the schema versions before and after opening: opening migrates."""
        self._pool.require()
        return self._migrated

    def stats(self) -> Stats:
        """Measure the store."""
        return self._pool.read(lambda tx: maintenance.measure(tx, self._address.schema))

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it."""
        self._pool.require()
        return maintenance.verify(self._pool, progress)

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove what is no longer needed, in small transactions."""
        return maintenance.prune(self._pool, ended_before_ms, forget_before_ms, run_rules.BLOB_GRACE_MS)


def _clamped(limit: int) -> int:
    return min(max(0, limit), _MOST)


def _listing(query: RunQuery) -> str:
    """Return the statement that uses the narrowest index for a query."""
    if query.parent is not None:
        return "list_children"
    if query.session is not None:
        return "list_owned"
    if query.labels:
        return "list_labelled"
    return "list_in_states" if query.states else "list_runs"
