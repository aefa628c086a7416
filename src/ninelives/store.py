"""The `Store` protocol: everything that Nine Lives keeps goes through these methods, and nothing else.

Rules that hold for every method of every store:

- **One call is one transaction.** It happens whole or not at all, and when it returns, it is durable
  to the store's own promise. If we die inside a call, a later reader sees all of it or nothing; the
  caller cannot know which, so every call may be made again: the second one changes nothing more.
- **What is read is verified.** A row or record that is not what was written raises `Corrupt` (naming the
  run where it can) and is never returned; calls that concern other runs go on.
- **Errors.** `UsageError`: the call was wrong, nothing was done. `StoreUnavailable`: nothing was written,
  try again later. `StoreBroken`: a write may or may not be durable; the process must end and read
  again. Drivers' own exceptions never leave a store.
- **Threads.** Any thread may call; calls are serialised where they must be. A store is not carried across
  `fork`: in the child every call raises `StoreUnsafe`.
- **Time** is the store's own: `now_ms` of its clock, never the caller's.
- **Ids** (runs, sessions, agents, signals, items) are checked by `keys.check_id` before anything is
  written, and are bound, never pasted into a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow, State
from ninelives.core.model.session import Cause, Evidence, NewSession, Session

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


class Store(Protocol):
    """What runs are kept in."""

    @property
    def url(self) -> str:
        """Name the store for people, without secrets."""

    @property
    def identity(self) -> str:
        """Name this store: made with it, and no other has it. Empty where an opener can tell by itself.

        A store that is emptied or replaced under whoever has opened it raises StoreBroken from then on.
        """

    @property
    def lossy(self) -> str | None:
        """Say why what this store acknowledges may be lost, where somebody has accepted that; else None.

        Where it may be, no non-resumable action is started.
        """

    def now_ms(self) -> int:
        """Return the store's wall clock."""

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs, each with its record 0; answers in the same order.

        An id that exists with the same agent and fingerprint gives that run, whatever became of it;
        with others, an IdConflict in its place; the rest of the batch is created. Two equal ids in one
        batch are one run. A new child of a run that has ended is a RunFinished in its place. Blobs that a
        run refers to must exist. Wakes who waits for work.
        With a session, those that are born here and due are given to it, as `claim_runs` would give them, and
        nobody is woken for them. Raises LeaseLost, as that does, and has created nothing.
        If we die here: every run of the batch exists or none; creating again is safe.
        """

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None if there is no such run."""

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the runs that fit, newest first."""

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and take the lock that tells that its process lives.

        Raises IdConflict when the id was used before: a session id names one process's life.
        If we die here: a session without a process, found by `end_sessions` like any other.
        """

    def renew_session(self, session: str) -> Session:
        """Renew the lease, by the store's clock; its runs stay its own.

        Raises LeaseLost when the session has ended, or its lease has run out and it may be ended any
        moment. Never brings a session back.
        """

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs, which fall due at once and are fenced from then on.

        Returns those ended by this call. `evidence` says, by id, what was seen of their end.

        With None: all that the store itself can prove gone, by a dropped lock (DIED) or an expired lease
        (EXPIRED); `cause` is then not used. The dropped lock of a session whose keeper lives is left to that.
        Each end of a session with runs, and each run left by it, is told to the recovery log.
        Sessions that have ended are left alone, but for evidence that they are gone where that was not known;
        unknown ids are ignored.
        If we die here: a session and all its runs are released, or none of them; the next call finds them.
        """

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not, or None if there never was one. `fate` is what is known now."""

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log; each entry is chained to all before it, and none is ever removed.

        If we die here: all of them are there, or none.
        """

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first; of one run, or of all; before a number.

        Each is verified against the one before it. Raises Corrupt.
        """

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
        """Give at most `limit` runs that are due to the session; of each agent at most as many as stated.

        Only runs of the queues, and pinned to no host or to this one; with `only`, no
        other run than that one and those that descend from it.
        Runs that are suspected of killing their workers (see `core.lives`) are given by `only`, or one at a
        time with `alone`, which gives no others: the caller has nothing else then that has not moved yet.
        Which, and in what order, is for `core.runs.chosen` to say: by priority (high first) whatever their
        agents, then agents in turn in the order of the mapping; suspects by how long they have waited. The
        epoch of each grows by one, which fences whoever owned it before.
        Raises LeaseLost when the session has ended or its lease has run out.
        If we die here: the runs belong to a session that will be ended; nothing else is lost.
        """

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return what is durable of a run in one consistent read: records from `since` on (None: the
        current turn), signals that were not taken, and the items.

        The chain over the records returned is verified up to the head. Raises UnknownRun; Corrupt.
        `since` below the first record still stored starts there.
        """

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return what is new, in one consistent read, of those runs whose `news` is not what was seen.

        Runs without news, and unknown ones, are left out; the order is that of the question. One that is
        damaged is left out too: its owner meets it when it reads or writes. Cheap for many runs without news.
        """

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Return what `load_journal` would of the current turn of each run, in order, in one read.

        In the place of a journal that cannot be given stands its error: UnknownRun, Corrupt.
        """

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Let the owner of a run with a damaged journal go on from its last good prefix, or from the snapshot
        before it, under the rules of `core.salvage`; a record says what was given up.

        Nothing happens to a journal that is sound. Raises Corrupt, and changes nothing, when something that
        was done would be forgotten, or nothing is left to go on from; LeaseLost when the run is another's;
        UnknownRun.
        If we die here: the journal is as damaged as before, or the run goes on; salvaging again is safe.
        """

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction; one verdict per commit, in order.

        A run occurs at most once in a batch. Each commit is applied whole or not at all; a refused one
        leaves the others alone. Conditional on the run's epoch, length and head in the same transaction;
        a commit that has been applied before is COMMITTED again and changes nothing. Key operations
        apply in order, under the rules of `core.dedup`; ending a run passes on or doubts the keys that it
        still holds, tells its parent, and cancels its children unless it is completed. Blobs referred to
        must exist. Parking with news not seen makes the run due at once.
        A commit that reserves a key returns the key in its verdict, unless it had been applied before.
        Wakes workers when a run becomes due, has news, asks a person, or ends, and not otherwise;
        records of output wake those who wait for output.
        Raises BadRecord when the store chokes on the content of the batch: nothing was written; try halves.
        If we die here: all of the batch is durable or nothing is.
        """

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Append a signal to a run's queue and wake it; order is kept per run.

        With an `id` that this run has seen: the earlier signal is returned, or IdConflict if name or body
        differ. Raises UnknownRun; RunFinished.
        """

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry; asking again changes nothing more.

        A pending run is cancelled at once, any other by its owner (a worker claims it for that).
        A paused run is not claimed. Raises UnknownRun; RunFinished.
        """

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return open items, oldest first; with `answered`, those that were answered or closed too.

        With `run`, only those of that run; with `item`, only that one.
        """

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run; an escalated run goes on.

        Raises StaleAnswer when it is unknown, closed, answered (unless by the same person with the same
        words) or when `digest` is not that of the item: what was shown is not what would be done.
        If we die here: the answer counts, once, or was never given.
        """

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Keep contents under their digests, which are returned in order; known ones cost nothing.

        If we die here, or before a record refers to them: garbage, which `prune` removes after a while.
        """

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents. Raises Corrupt when one is missing or is not what its digest says."""

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened (True) or the time is over (False).

        Woken by whatever makes a run due, gives it news or ends it, from any process. What happened
        since the last call of this store object counts: a wake-up between two calls is not lost.
        A store that sees a session die while it waits ends it, as `end_sessions(None)` does, and wakes.
        """

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """As `wait_for_work`, for those who read what runs emit: woken by committed output and by ends.

        A channel of its own: a stream of tokens wakes its readers and no worker.
        """

    def close(self) -> None:
        """Let go of files and connections. Nothing depends on it: a kill is as good."""


class Stats(Struct, frozen=True, kw_only=True):
    """How large the store is and what is in it."""

    runs: dict[State, int]
    records: int
    record_bytes: int
    blobs: int
    blob_bytes: int
    keys: int
    open_items: int
    sessions: int
    disk_bytes: int


class Fault(Struct, frozen=True):
    """Something that `verify` found: where, and what is wrong."""

    run: str | None
    what: str


class Pruned(Struct, frozen=True, kw_only=True):
    """What `prune` removed."""

    journals: int
    records: int
    blobs: int
    keys: int
    runs: int


class Maintenance(Protocol):
    """What operators do with a store, beside the hot path. Every store has these too."""

    @property
    def risks(self) -> Mapping[str, str]:
        """Say what is not safe where the store is kept and accepted by the URL, and what to do about each.

        As last seen, and also where the store is not `lossy`: what may be repeated may be lost there.
        """

    def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version's; returns the versions before and after.

        Killed in the middle, the old version is there untouched and the next call does it again.
        """

    def stats(self) -> Stats:
        """Measure the store."""

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read everything and check it: structure, chains, blobs, keys against runs. Empty: all is well."""

    def prune(self, *, ended_before_ms: int, forget_before_ms: int = 0) -> Pruned:
        """Remove the journals of runs that ended before a moment, and blobs that nothing refers to.

        A pruned run's row stays, with its head and length; its settled keys become tombstones. Journals of
        live runs keep the current and the previous turn. Rows of runs that ended before `forget_before_ms`
        go too. Works in small transactions, so that writers are not held up; killed in the middle, the
        next call goes on.
        """
