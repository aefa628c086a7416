"""The `Store` protocol: everything that Nine Lives keeps goes through these methods, and nothing else.

Rules that hold for every method of every store:

- **One call is one transaction.** It is applied whole or not at all, and when it returns, it is durable
  to the store's promise. If we die inside a call, a later reader sees all of it or nothing. The caller
  cannot know which, so every call is idempotent: repeating it changes nothing more.
- **Every read is verified.** A row or record that is not what was written raises `Corrupt` (naming the
  run where it can) and is never returned; calls that concern other runs still work.
- **Errors.** `UsageError`: the call was wrong, nothing was done. `StoreUnavailable`: nothing was written,
  try again later. `StoreBroken`: a write may or may not be durable; the process must end and read
  again. Drivers' exceptions never leave a store.
- **Threads.** Any thread may call; the store serialises calls where it must. A store does not survive
  `fork`: in the child every call raises `StoreUnsafe`.
- **Time** is the store's: `now_ms` of its clock, never the caller's.
- **Ids** (runs, sessions, agents, signals, items) are checked by `ids.check_id` before anything is
  written, and are bound, never pasted into a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.model.capsule import Capsule, Changes, Imported, KeyPage, Move
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.counter import Counter, RunCount
from ninelives.core.model.document import Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.core.model.run import Claims, Control, Journal, NewRun, News, RunQuery, RunRow, State
from ninelives.core.model.session import Cause, Evidence, NewSession, Session

Progress = Callable[[int, int], None]
"""Called with how many are done, and how many there are."""


class Store(Protocol):
    """Where runs are kept."""

    @property
    def url(self) -> str:
        """Name the store for people, without secrets."""

    @property
    def identity(self) -> str:
        """The id that this store got when it was created, and no other store has; empty where none is needed.

        A store that was emptied or replaced since it was opened raises StoreBroken from then on.
        """

    @property
    def lossy(self) -> str | None:
        """Why an acknowledged write may be lost, if the URL accepts that risk; else None.

        On a lossy store, no non-resumable action is started.
        """

    def now_ms(self) -> int:
        """Return the store's wall clock, without a network call in a process whose session is renewed.

        A server's store learns the time with each renewal, and counts on by the local boot clock. If the
        server's clock is set, this follows with the next renewal.
        """

    def read_clock(self) -> int:
        """Return the store's wall clock as it is now: a server is asked. Do not call it on an event loop."""

    # Runs ---------------------------------------------------------------------------------------

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[RunRow | UsageError]:
        """Create runs, each with its record 0; return one answer per run, in the same order.

        If the id exists with the same agent and fingerprint, the answer is that run, whatever its state; with
        others it is an IdConflict, and the rest of the batch is created. Two equal ids in one batch are one
        run. For a new child of a run that has ended, the answer is a RunFinished. Blobs that a run refers to
        must exist. Wakes workers that wait for work.
        With a session, the store gives it the new runs that are due, as `claim_runs` would, and wakes no
        worker for them. Raises LeaseLost, as `claim_runs` does, and then creates nothing.
        If we die here: every run of the batch exists or none; creating again is safe.
        """

    def read_run(self, run: str) -> RunRow | None:
        """Return a run's row, or None if there is no such run."""

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        """Return the runs that fit, newest first."""

    # Sessions -----------------------------------------------------------------------------------

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and take the lock that proves its process alive.

        Raises IdConflict when the id was used before: a session id names one process.
        If we die here: a session without a process, found by `end_sessions` like any other.
        """

    def renew_session(self, session: str, *, counts: Sequence[Counter] = ()) -> Session:
        """Renew the lease, by the store's clock; the session keeps its runs.

        `counts` is what the session has done since it began, in place of what an earlier renewal said; none
        leaves that as it is.
        Raises LeaseLost when the session has ended, or when its lease has run out and any worker may end it.
        Never revives a session. Returns the version of the document `halts`, read in the same transaction.
        """

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
        counts: Mapping[str, Sequence[Counter]] | None = None,
    ) -> list[Session]:
        """End sessions and release their runs, which fall due at once and are fenced from then on.

        Returns the sessions that this call ended. `evidence` says, by id, what was seen of their end.
        `counts` says, by id, what they did since they began, in place of what their last renewal said; the
        store's counters grow by that (`core.rules.counting`).

        With None: ends every session that the store itself can prove gone, by a dropped lock (DIED) or an
        expired lease (EXPIRED), and ignores `cause`. A dropped lock does not end a session whose keeper (its
        supervisor's session) lives: only the keeper may. See docs/decisions/0009.
        Writes to the recovery log each end of a session with runs, and each run that it left.
        Does not change sessions that have ended, except to add new evidence that they are gone. Ignores
        unknown ids.
        If we die here: a session and all its runs are released, or none of them; the next call finds them.
        """

    def read_session(self, session: str) -> Session | None:
        """Return a session, ended or not; None if there was never one. `fate` is as known at this read."""

    def list_sessions(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""

    def append_log(self, new: Sequence[NewEntry]) -> None:
        """Append to the recovery log. Each entry is chained to all before it; `prune` may remove the oldest.

        The store's counters grow by what the entries say (`core.rules.counting`).
        If we die here: all new entries are there, or none.
        """

    def read_log(
        self,
        *,
        run: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[LogEntry]:
        """Return entries of the recovery log, newest first: of one run or of all, numbered below `before`.

        Each entry is verified against the one before it. Raises Corrupt.
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
        solo: bool = False,
    ) -> Claims:
        """Give the session at most `limit` due runs, and of each agent at most as many as `agents` says.

        Considers only runs of the queues that are pinned to no host or to this one; with `only`, just that
        run and its descendants. Suspects (runs that may kill their worker, see `core.rules.deaths`) are
        given with `only`, or one at a time with `solo`, which gives nothing else: every other run of the
        caller has made progress by then. `core.rules.run_rules.chosen` decides which runs, and in what
        order: by priority (high first), then one from each agent in the order of the mapping; suspects by
        how long they have waited. The epoch of each run grows by one, which fences its previous owner.
        Raises LeaseLost when the session has ended or its lease has run out. If we die here: the runs belong
        to a session that will be ended; nothing else is lost.
        Returns the version of the document `halts` too, read in the same transaction.
        """

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Return what is durable of a run, in one consistent read.

        That is its row, records from `since` on (None: the current turn), signals not taken yet, and items.
        If the records before `since` were pruned in part, starts at the first one still stored. Verifies the
        chain over the returned records up to the head. Raises UnknownRun; Corrupt.
        """

    def read_news(self, seen: Mapping[str, int]) -> list[News]:
        """Return what is new, in one consistent read, of the runs whose `news` differs from the count seen.

        Keeps the order of `seen` and leaves out runs without news, unknown runs, and damaged runs (the owner
        gets the error when it reads or writes). Cheap for many runs without news.
        """

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        """Load the current turn of each run as `load_journal` does, in order, in one read.

        For a journal that cannot be loaded, the answer is its error: UnknownRun, Corrupt.
        """

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix, or to the snapshot before it, for its owner.

        Follows the rules of `core.journal.salvage` (see docs/decisions/0008); a record says what was given
        up. Does nothing to a sound journal. Raises Corrupt, and changes nothing, when salvaging would forget
        something that was done, or when nothing is left to continue from; LeaseLost when another worker owns
        the run; UnknownRun. If we die here: the journal is as damaged as before, or salvaged; salvaging
        again is safe.
        """

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction; one verdict per commit, in order.

        A run occurs at most once in a batch. Each commit is applied whole or not at all; a refused one does
        not affect the others. The same transaction checks the run's epoch, length and head; a commit that was
        applied before is COMMITTED again and changes nothing. Key operations apply in order, under the rules
        of `core.rules.dedup`. Ending a run frees or doubts the keys that it still holds, notifies its parent,
        and cancels its children unless it completed. Blobs referred to must exist. Parking with unseen news
        makes the run due at once.
        A commit that reserves a key returns the key in its verdict, unless it had been applied before.
        A document that a commit requires at a version is at that version until the commit is durable: once a
        write of the document has returned, no commit is applied that requires the version before (CHANGED).
        Accounts are charged in order, under the rules of `core.governance.accounts`: OVER names the limit
        that would be passed. One that is damaged, or no account, refuses the commit.
        Wakes waiting workers when a run becomes due, has news, asks a person, or ends, and not otherwise;
        records of output wake the readers of output.
        Raises BadRecord when the store fails on the content of the batch: nothing was written; try halves.
        If we die here: all of the batch is durable or nothing is.
        """

    def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
        """Return the rows of those keys that were ever used."""

    # From outside -------------------------------------------------------------------------------

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal:
        """Append a signal to a run's queue and wake the run; each run gets its signals in order.

        If the run has seen this `id`: returns the earlier signal, or raises IdConflict if name or body
        differ. Raises UnknownRun; RunFinished.
        """

    def control_run(self, run: str, control: Control) -> RunRow:
        """Cancel, pause, resume or retry a run; repeating a control changes nothing more.

        The store cancels a pending run at once; any other run is cancelled by its owner (a worker claims it
        for that). A paused run is not claimed. Raises UnknownRun; RunFinished.
        """

    def list_inbox(
        self, *, run: str | None = None, item: str | None = None, answered: bool = False, limit: int = 100
    ) -> list[Item]:
        """Return open items, oldest first; with `answered`, also those answered or closed.

        With `run`, only items of that run; with `item`, only that item.
        """

    def answer_item(self, item: str, *, digest: bytes, body: bytes, by: str) -> Item:
        """Answer an open item and wake its run; an escalated run becomes due again.

        Raises StaleAnswer when the item is unknown, closed or answered (unless by the same person with the
        same answer), or when `digest` is not the item's: the person saw something else than would be done.
        If we die here: the answer was recorded, once, or was never given.
        """

    # Blobs and waiting --------------------------------------------------------------------------

    def put_blobs(self, contents: Iterable[bytes]) -> list[bytes]:
        """Store contents by their digests and return these in order; known contents cost nothing.

        If we die here, or before a record refers to them: garbage, which `prune` removes after a while.
        """

    def get_blobs(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the contents. Raises Corrupt when one is missing or does not match its digest."""

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened (True) or the timeout has passed (False).

        Wakes when any process makes a run due, gives it news, or ends it. Wake-ups since the last call on
        this store object count, so none is lost between two calls. A store that sees a session die while it
        waits ends that session, as `end_sessions(None)` does, and wakes.
        """

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block as `wait_for_work` does, for readers of output: committed output and ends of runs wake it.

        A separate channel, so that a stream of tokens wakes its readers and no worker.
        """

    def close(self) -> None:
        """Close files and connections. Nothing depends on this call: a kill is as good."""


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


class Fault(Struct, frozen=True, omit_defaults=True):
    """Something that `verify` found: where, and what is wrong.

    `duplicate` is the kind of a proved duplicate (`core.rules.duplicates`); empty for every other fault.
    """

    run: str | None
    what: str
    duplicate: str = ""


class Sample(Struct, frozen=True):
    """Which runs and blobs are read: a share of them, chosen by a number. Everything else is read whole."""

    share: float = 1.0
    salt: int = 0


WHOLE = Sample()


class VerifiedPart(Struct, frozen=True, kw_only=True):
    """What `verify_part` found, and the position from which the next part goes on; empty at the end.

    `rows` counts what was read, `runs` the runs among it. `at` of `of` is the number of the last run, for a
    progress bar; 0 in parts that read no runs.
    """

    position: str
    faults: tuple[Fault, ...]
    rows: int
    runs: int
    at: int = 0
    of: int = 0


class Pruned(Struct, frozen=True, kw_only=True):
    """What `prune` removed."""

    journals: int
    records: int
    blobs: int
    keys: int
    runs: int
    entries: int = 0
    sessions: int = 0


class DocumentStore(Protocol):
    """The documents of a store, and its clock: all that work needs whose state is kept in documents."""

    def read_clock(self) -> int:
        """Return the store's wall clock as it is now, as `Store.read_clock`."""

    def read_documents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Document]:
        """Return the documents whose names begin with a prefix and come after a name, by name."""

    def write_document(
        self, name: str, body: bytes | None, *, version: int, counts: Sequence[Counter] = ()
    ) -> Document | None:
        """Write a document, or remove it (None), on the condition that it has this version; 0: it is new.

        Returns it, or None when it was removed. Raises StaleDocument. A repeated write changes nothing: a
        write that finds the next version with the same body, or nothing to remove, counts as done.
        A write of the document `halts` wakes workers that wait for work.
        The store's counters grow by `counts`, if this call changes the document: so each write is counted
        once. If we die here: the old version is there, or the new one with its counts.
        """


class Maintenance(DocumentStore, Protocol):
    """Operators' methods of a store. Every store has these too."""

    @property
    def risks(self) -> Mapping[str, str]:
        """The risks of the set-up that the URL accepts, and what to do about each; as of the last check.

        A store that is not `lossy` may have some too: those concern only records of what may be repeated.
        """

    def migrate(self) -> tuple[int, int]:
        """Migrate the schema to this version's; return the versions before and after.

        If we die here: the old version is untouched, and the next call migrates it again.
        """

    def stats(self) -> Stats:
        """Measure the store."""

    def gauges(self) -> Gauges:
        """Count what metrics show: unfinished runs, open items, bytes. Reads no journal, verifies nothing.

        The cost grows with the unfinished runs, not with the history.
        """

    def verify(self, progress: Progress | None = None) -> list[Fault]:
        """Read and check everything: structure, chains, blobs, keys against runs. Empty: no faults.

        It is `verify_part` from the beginning to the end, without a pause.
        """

    def verify_part(self, position: str = "", *, limit: int = 100, sample: Sample = WHOLE) -> VerifiedPart:
        """Read and check about so many rows from a position on ("": from the beginning); writes nothing.

        A fault ends nothing. A position of another version begins again. Raises StoreUnavailable.
        """

    def prune(
        self,
        *,
        ended_before_ms: int,
        forget_before_ms: int = 0,
        log_before_ms: int = 0,
        agents: Mapping[str, int] | None = None,
    ) -> Pruned:
        """Remove the journals of runs that ended before a moment, and blobs that nothing refers to.

        `agents` gives some agents a moment of their own. Entries of the recovery log from before
        `log_before_ms`, and sessions that ended before it, are removed too (`stores.shared.maintenance`).

        A pruned run's row stays, with its head and length; its settled keys become tombstones. Journals of
        live runs keep the current and the previous turn. Rows of runs that ended before `forget_before_ms`
        are removed too. Works in small transactions, which do not block writers for long.
        If we die here: a part is removed; the next call continues.
        """

    def read_counters(self) -> list[Counter]:
        """Return all counters, of one moment: none is ever smaller than it was (`core.rules.counting`)."""

    def count_runs(self) -> list[RunCount]:
        """Count the runs of each agent, queue and state, as far as there are any."""

    def export_run(self, run: str) -> Capsule:
        """Return everything that is stored of a run, in one consistent read, verified.

        Its blobs are read with `get_blobs`. Raises UnknownRun; Corrupt.
        """

    def import_runs(self, capsules: Sequence[Capsule], *, move: str = "") -> list[Imported]:
        """Create runs from capsules, all or none, each under a new number and a new epoch, without an owner.

        A run that is there already, as in the capsule or continued from there, stays as it is. Unfinished
        runs are paused, and their open starts are put in doubt (`core.rules.capsules`). Blobs referred to
        must exist. Raises IdConflict for a run that exists with another history, KeyConflict for a key that
        the store has in another state, and BadRecord, BadName or Corrupt for a capsule that is not sound.
        With the id of a `move`, runs are due at once: they have left the other store. No run of these ids may
        be there, and the store notes that the move arrived: it does so once, and never after it was called
        back (UsageError).
        If we die here: all runs are there or none; importing again is safe.
        """

    def import_keys(self, keys: Sequence[Key]) -> None:
        """Take in business keys whose runs are not in the store: what they protect must not be done again.

        Raises KeyConflict for one that the store has in another state, UsageError for one that only its run
        could settle. If we die here: all keys are there or none; importing again is safe.
        """

    def changed_runs(self, cursor: str = "", *, limit: int = 1000) -> Changes:
        """List the runs that may have changed since a cursor, each with a stamp to compare.

        An empty cursor begins with a list of all runs, in parts of `limit`. When that is whole, the next call
        lists what may have changed since it began: at least every run whose row was changed, and that is not
        forgotten. Compare the stamps with those that you have. `prune` of an ended run may go unnoticed.
        Costs writers nothing; does not verify what it lists. Raises UsageError for a cursor of another store.
        """

    def list_keys(self, cursor: str = "", *, limit: int = 1000) -> KeyPage:
        """Return all business keys, in parts; one that changes meanwhile may come twice, or as it was."""

    def depart_runs(self, runs: Sequence[str], move: Move) -> list[RunRow]:
        """Begin a move: fence the runs' owners, and let no worker claim the runs. All or none.

        The runs accept no signals, answers and controls from then on; their keys stay held. Raises UsageError
        when a parent or a child that has not ended would stay behind; RunFinished, RunMoved, UnknownRun.
        If we die here: all runs are on their way or none; beginning the same move again changes nothing.
        """

    def settle_move(self, move: str, *, arrived: bool) -> list[RunRow]:
        """End a move: the runs have arrived in the other store, or are called back.

        When they have arrived, their unsettled keys and their rows say where they are. Called back, they are
        as before; the caller must know that they are not, and never will be, in the other store.
        If we die here: the move is settled or not; settling it again the same way changes nothing.
        """
