"""Group commit: one transaction for everything that is queued, from all runs of the process.

Invariants:
- A run's records become durable as a prefix, in the order they were submitted. They are numbered and
  chained when the batch is made, onto what is known to be durable, so a refused ticket leaves no hole.
- A ticket is answered after its transaction is durable, never before. If we die earlier, no caller has an
  answer.
- One run's error affects no other run: fenced runs are dropped, bad content is found by halving the batch.
- `StoreUnavailable` (disk full, lock held) wrote nothing: we wait and retry, and answer nothing yet.
- Any other error (above all a failed sync) means that we do not know what is durable. It is never
  retried: `fatal` ends the process, and the next start reads what is there.

A thread that waits for a ticket while no batch is under way commits the queue itself, so a single commit
costs no thread switch (see docs/decisions/0006). The committer's own thread serves callers that do not
wait: event loops, and tickets that may be committed later. It alone waits for a store that is away.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    NineLivesError,
    StoreBroken,
    StoreUnavailable,
    UsageError,
)
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.engine.commit.sealing import cipher_of, inline_bytes
from ninelives.engine.commit.ticket import (
    NO_EXTRAS,
    Draft,
    Extras,
    Home,
    Tail,
    Ticket,
    commit_of,
    commit_of_single,
    deliver,
)
from ninelives.store import Store

EXIT_CODE = 70
"""Exit code of a process that no longer knows what is durable (EX_SOFTWARE)."""

_REPORT_SECONDS, _REPORT_BYTES = 1.0, 4096
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 1.0
_Argument = TypeVar("_Argument")
_Answer = TypeVar("_Answer")


def end_process(error: BaseException) -> None:
    """End this process at once: no exit handler runs, nothing that could act on a wrong state."""
    try:
        what = f"{type(error).__name__}: {error}" if isinstance(error, NineLivesError) else repr(error)
        # A pipe that is full and not read would block the write; one that is ready takes this much.
        if select.select([], [2], [], _REPORT_SECONDS)[1]:
            os.write(
                2, f"ninelives: the process ends here: {what}\n".encode(errors="replace")[:_REPORT_BYTES]
            )
    finally:
        os._exit(EXIT_CODE)  # whatever became of the report: stderr may be closed


def _closed(run: str | None = None) -> StoreUnavailable:
    return StoreUnavailable("the committer has been closed", run=run, remedy="Open the store again")


class Committer:
    """Commits the tickets of all runs of a process in batches."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        fatal: Callable[[BaseException], None] = end_process,
        paused: Callable[[StoreUnavailable | None], None] = lambda _: None,
    ) -> None:
        self._store, self._clock, self._fatal, self._paused = store, clock, fatal, paused
        self._cipher, self._most_bytes = cipher_of(store), inline_bytes(store)
        # Every thread appends without a lock; only the holder of `_commit_lock` takes from it.
        self._queue: deque[Ticket] = deque()
        # Taken from the queue and not answered yet. Kept here so that
        # an error in the middle of a batch still answers each of them.
        self._batch: list[Ticket] = []
        self._commit_lock = threading.Lock()
        self._flush_wanted = threading.Condition()
        # When the committer's thread commits next; None: no ticket waits for the thread.
        self._flush_at: float | None = None
        self._sealed: NineLivesError | None = None
        self._closing = False
        # Of the holder of `_commit_lock`: whether it waits for a store that is away.
        self._is_patient = False
        self._is_away = False
        self._thread: threading.Thread | None = None

    def submit(
        self,
        tail: Tail,
        drafts: Sequence[Draft] = (),
        extras: Extras = NO_EXTRAS,
        *,
        home: Home | None = None,
        within_seconds: float | None = 0.0,
    ) -> Ticket:
        """Queue drafts, to commit within `within_seconds`; None: the caller commits them with `wait`.

        Raises BadRecord when a draft cannot be recorded; StoreUnavailable after `close`; once the committer
        is sealed, the error that sealed it (StoreBroken).
        """
        if self._sealed is not None:
            raise self._sealed
        if self._closing:
            raise _closed(tail.run)
        # On the caller's thread: bad content raises there, and does
        # not fail the batch that it would share with other runs.
        if extras is not NO_EXTRAS:
            extras.check(tail.run)
        ticket = Ticket(tail, extras, home, waited_for=within_seconds is None)
        for draft in drafts:
            ticket.add(draft, self._clock.now_ms(), self._cipher)
        self._queue.append(ticket)
        if self._closing:
            # Closed since the check above: `close` may have read the queue for the last time.
            self._commit_queue()
        elif within_seconds is not None:
            self._request_flush(time.monotonic() + within_seconds)
        return ticket

    def wait(self, ticket: Ticket) -> Verdict:
        """Wait for a ticket submitted with `within_seconds=None`; commit the queue here if no thread does."""
        self._commit_queue()
        if not ticket.is_answered:
            ticket.join()
        return ticket.result()

    def commit(self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NO_EXTRAS) -> Verdict:
        """Submit and wait: the drafts are durable, or refused, when this returns."""
        return self.wait(self.submit(tail, drafts, extras, within_seconds=None))

    def append(self, tail: Tail, draft: Draft, extras: Extras = NO_EXTRAS) -> Verdict | None:
        """Commit one plain record without a ticket; None: nothing was written, and a ticket is needed.

        This is the hot path.
        """
        at_ms = self._clock.now_ms()
        # Not blocking: if a batch is under way, a ticket is better, since it shares the next transaction.
        if not self._commit_lock.acquire(blocking=False):
            return None
        try:
            # Checked with the lock held: a queued ticket of the same run must
            # become durable before this record, and `close` waits for the lock.
            if self._queue or tail.is_over or self._sealed is not None or self._closing:
                return None  # earlier tickets are committed first
            commit = commit_of_single(tail, draft, at_ms, extras, self._most_bytes)
            if commit is None:
                return None
            tally = commit.tally
            if self._cipher is not None:
                commit = self._cipher.commit(commit)
            (verdict,) = self._store.commit((commit,))
            # CRASH: durable, and the caller has no answer.
            tail.move(commit, verdict.outcome, tally)
        except (BadRecord, Corrupt, StoreUnavailable):
            return None
        except BaseException as error:
            self._seal_off(error)
            if self._sealed is None or self._sealed is error:
                raise
            raise self._sealed from error
        else:
            return verdict
        finally:
            self._commit_lock.release()
            if self._queue:
                self._commit_queue()  # tickets of threads that found the lock taken

    def close(self) -> None:
        """Commit what is queued and stop the thread. Correctness does not depend on it: a kill is as safe."""
        with self._flush_wanted:
            self._closing = True
            self._flush_wanted.notify()
        if self._thread is not None:
            self._thread.join()
        with self._commit_lock:  # after the batch that another thread has under way
            self._drain(is_patient=False)
            # From here on nothing is written: the store may be closed next.
            self._sealed = self._sealed or _closed()
        self._commit_queue()

    def _request_flush(self, when: float) -> None:
        flush_at = self._flush_at
        if flush_at is not None and flush_at <= when:
            return  # the thread that clears it reads the queue afterwards, and our ticket is in it
        with self._flush_wanted:
            if self._flush_at is None or when < self._flush_at:
                self._flush_at = when
                self._flush_wanted.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ninelives-committer", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._flush_wanted:
                if self._closing:
                    return
                left = None if self._flush_at is None else self._flush_at - time.monotonic()
                if left is None or left > 0:
                    self._flush_wanted.wait(left)
                    continue
                self._flush_at = None
            self._commit_queue(is_patient=True)

    def _commit_queue(self, *, is_patient: bool = False) -> None:
        """Commit what is queued, unless another thread does; `is_patient`: wait for a store that is away."""
        # A thread that fails to get the lock has queued its ticket before the lock's holder reads the queue
        # again, right here: no ticket is left behind.
        while self._queue and self._commit_lock.acquire(blocking=False):
            try:
                is_away = not self._drain(is_patient=is_patient)
            finally:
                self._commit_lock.release()
            if is_away:
                self._request_flush(0.0)
                return

    def _drain(self, *, is_patient: bool) -> bool:
        """Commit everything that is queued, with `_commit_lock` held; False when the store is away.

        Only the committer's own thread is patient: a pause on a caller's thread would hold up its event loop,
        and a KeyboardInterrupt there would count as an unknown outcome.
        """
        self._is_patient = is_patient
        try:
            while self._queue:
                self._commit_batch()
        except StoreUnavailable as error:
            if not self._closing:
                self._put_back()
                return False
            self._fail_unanswered(error)  # nothing was written: no need to end the process
        except BaseException as error:  # noqa: BLE001 (after any error we no longer know what is durable)
            self._seal_off(error)
        return True

    def _put_back(self) -> None:
        """Put the unanswered tickets of the batch back: first in the queue, in their order."""
        batch, self._batch = self._batch, []
        self._queue.extendleft(reversed([ticket for ticket in batch if not ticket.is_answered]))
        deliver([ticket for ticket in batch if ticket.is_answered])

    def _commit_batch(self) -> None:
        groups = self._gather()
        if self._sealed is not None:
            raise self._sealed  # submitted while the committer was being sealed
        self._write(self._put_blobs(groups))
        answered, self._batch = self._batch, []
        deliver(answered)

    def _gather(self) -> list[list[Ticket]]:
        """Take from the queue one batch: of each run a prefix of tickets that commits or fails as one."""
        groups: dict[str, list[Ticket]] = {}
        blocked: set[str] = set()
        left: list[Ticket] = []
        for _ in range(len(self._queue)):
            ticket = self._queue.popleft()
            tail, run = ticket.tail, ticket.tail.run
            group = groups.get(run)
            # The store refuses a commit whole: what may be refused is first
            # in its commit, so that no ticket before it fails with it.
            waits = group is not None and (
                ticket.extras.may_be_refused or group[0].tail is not tail  # of a later claim
            )
            if waits or run in blocked:
                blocked.add(run)
                left.append(ticket)
                continue
            self._batch.append(ticket)
            if tail.is_over:
                ticket.fence()
                continue
            if group is None:
                groups[run] = [ticket]
            else:
                group.append(ticket)
            # The last of its commit: a commit carries the extras of one ticket (`ticket.commit_of`).
            if ticket.extras is not NO_EXTRAS:
                blocked.add(run)
        self._queue.extendleft(reversed(left))
        return list(groups.values())

    def _put_blobs(self, groups: list[list[Ticket]]) -> list[list[Ticket]]:
        """Store blobs of the tickets; return the groups without the tickets whose blobs the store refuses."""
        contents = [content for group in groups for ticket in group for content in ticket.spills]
        if not contents:
            return groups
        try:
            # Before the commit: a record must never refer to a blob that is not durable.
            self._until_available(self._store.put_blobs, contents)
        except (UsageError, BadRecord, Corrupt):
            return [kept for group in groups if (kept := [one for one in group if self._put_blobs_of(one)])]
        # CRASH: blobs exist that nothing refers to; pruning removes them.
        return groups

    def _put_blobs_of(self, ticket: Ticket) -> bool:
        try:
            self._until_available(self._store.put_blobs, ticket.spills)
        except (UsageError, BadRecord, Corrupt) as error:
            ticket.answer(Verdict(ticket.tail.run, Outcome.REFUSED, error))
            return False
        return True

    def _write(self, groups: list[list[Ticket]]) -> None:
        if not groups:
            return
        commits = [commit_of(group) for group in groups]
        tallies = [commit.tally for commit in commits]
        if self._cipher is not None:
            commits = list(map(self._cipher.commit, commits))
        try:
            verdicts = self._until_available(self._store.commit, commits)
        except (BadRecord, Corrupt) as error:
            self._halve(groups, error)
            return
        # CRASH: durable, and no ticket is answered.
        for group, commit, tally, verdict in zip(groups, commits, tallies, verdicts, strict=True):
            group[0].tail.move(commit, verdict.outcome, tally)
            # Nothing of the group was written. One by one, those
            # before the refused ticket are committed all the same.
            if len(group) > 1 and verdict.outcome not in (Outcome.COMMITTED, Outcome.FENCED):
                self._one_by_one(group)
                continue
            for ticket in group:
                ticket.answer(verdict)

    def _halve(self, groups: list[list[Ticket]], error: BadRecord | Corrupt) -> None:
        """Find the ticket that the store refuses: halve the runs, then take one run's tickets in order."""
        if len(groups) > 1:
            middle = len(groups) // 2
            self._write(groups[:middle])
            self._write(groups[middle:])
        elif len(groups[0]) > 1:
            self._one_by_one(groups[0])
        elif isinstance(error, BadRecord):
            ticket = groups[0][0]
            ticket.answer(Verdict(ticket.tail.run, Outcome.REFUSED, error))
        else:
            ticket = groups[0][0]
            # The run's own data is damaged: later tickets are
            # fenced, and do not build on what cannot be read.
            ticket.tail.is_over = True
            ticket.answer(None, error)

    def _one_by_one(self, group: list[Ticket]) -> None:
        for ticket in group:
            if ticket.tail.is_over:
                ticket.fence()
            else:
                self._write([[ticket]])

    def _until_available(self, call: Callable[[_Argument], _Answer], argument: _Argument) -> _Answer:
        """Call until the store is available: StoreUnavailable wrote nothing, so a retry is safe.

        Raises StoreUnavailable if we are not patient, or closing.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = call(argument)
            except StoreUnavailable as error:
                if self._closing:
                    raise
                self._is_away = True
                self._paused(error)
                if not self._is_patient:
                    raise
                # With `_commit_lock` held: all tickets wait in order, and
                # none overtakes the batch that is being retried.
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                if self._is_away:
                    self._is_away = False
                    self._paused(None)
                return answer

    def _seal_off(self, error: BaseException) -> None:
        """Call `fatal`, and report no ticket as committed.

        Where `fatal` returns (a runtime inside another server), all tickets fail, and so do all later ones.
        """
        # Once: `fatal` may return, and further tickets arrive while we seal.
        if self._sealed is None:
            self._fatal(error)
        known = (
            error if isinstance(error, NineLivesError) else StoreBroken(f"the committer failed: {error!r}")
        )
        self._sealed = known
        self._fail_unanswered(known)

    def _fail_unanswered(self, error: NineLivesError) -> None:
        """Answer every queued or unanswered ticket with an error."""
        stranded, self._batch = self._batch, []
        while self._queue:
            stranded.append(self._queue.popleft())
        for ticket in stranded:
            if not ticket.is_answered:
                ticket.answer(None, error)
        deliver(stranded)
