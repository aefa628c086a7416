"""Takeovers: what was recovered of a dead worker's run, and its first progress, for the recovery log.

Entries are written in a thread, in batches, and no run waits for them. Nor do they compete with a recovered
run for the store: a claim is logged together with the run's first progress, or WRITE_SECONDS later. If we die
before they are written, these entries are lost; the worker that ends our session logs that we died while we
owned the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, NineLivesError
from ninelives.core.journal.recovery_log import Completion, Left, Recovery, Verified
from ninelives.core.journal.replay import paid_tokens
from ninelives.core.journal.resources import open_in
from ninelives.core.model.commit import Escalate
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Journal, Kind, Record, RunRow, State
from ninelives.core.model.session import Session
from ninelives.core.rules import deaths
from ninelives.core.rules.counting import kind_of_start
from ninelives.core.rules.recovery_check import JournalSummary, faults_of_keys, faults_of_state, summary_of
from ninelives.engine.hooks import Hooks, Observer, RecordsCommitted, ResourceChecked, StepReplayed
from ninelives.store import Store

# What follows a doubt says what became of the run: it goes on, or a person is asked.
_NO_OUTCOME = deaths.NO_PROGRESS | {Kind.DOUBT}
_MOST_REDONE = 20
_RECENT = 8  # entries of a run that are searched for its last death
_POLL_SECONDS = 0.002
WRITE_SECONDS = 0.25
"""How long the entry about a claim may wait for the run's first progress."""


class Takeover(Observer):
    """A run that was taken over here, from its claim until it makes progress or is no longer executed.

    It observes the run's executions: counts what is replayed, and notices the first durable progress.
    """

    def __init__(self, run: RunRow, taken_ms: int, clock: Clock, moved: Callable[[Takeover], None]) -> None:
        self.run, self.taken_ms, self._moved = run, taken_ms, moved
        self._clock, self._since_ms = clock, clock.boot_ms()
        self.resumed_ms: int | None = None
        self.progress_ms: int | None = None
        self.journal: Journal | None = None
        self.steps = self.decisions = self.tokens = 0
        self.outcome = ""
        self.redone: tuple[str, ...] = ()
        self.kinds: Counter[str] = Counter()
        self._replayed: list[int] = []
        self.checked = 0
        self.stale: list[str] = []

    def begin(self, journal: Journal, redone: Mapping[str, Record]) -> None:
        """Keep the journal of the first execution, and the steps that were started without an outcome."""
        if self.journal is None:
            self.journal, self.redone = journal, tuple(redone)[:_MOST_REDONE]
            self.kinds.update(map(kind_of_start, redone.values()))

    @property
    def saved_ms(self) -> int:
        """How long the replayed steps had taken when they were executed."""
        took = {record.seq: record.took_ms or 0 for record in self.journal.records} if self.journal else {}
        return sum(took.get(seq, 0) for seq in self._replayed)

    def replayed(self, event: StepReplayed) -> None:
        """Count a step whose outcome was found in the journal."""
        self.steps += 1
        self._replayed.append(event.record.seq)
        if event.declared.is_decision:
            self.decisions += 1
            self.tokens += paid_tokens(event.record.body)

    def resource_checked(self, event: ResourceChecked) -> None:
        """Count the check of a resource that the run holds; note a stale one."""
        self.checked += 1
        if event.stale is not None:
            self.stale.append(f"{event.target}: {event.stale}")

    def committed(self, event: RecordsCommitted) -> None:
        """Note when the run first writes, and its first durable progress.

        On the store's clock: our wall clock may be wrong.
        """
        if self.resumed_ms is None:
            # An intent is enough: replay is over. What the first new step takes is not the recovery's.
            self.resumed_ms = self.taken_ms + self._clock.boot_ms() - self._since_ms
        is_progress = event.change is not None or any(kind not in _NO_OUTCOME for kind, _ in event.records)
        if self.progress_ms is None and is_progress:
            self.progress_ms = self.taken_ms + self._clock.boot_ms() - self._since_ms
            self.outcome = "escalated" if isinstance(event.change, Escalate) else "recovered"
            self._moved(self)

    def report(self, hooks: Hooks) -> None:
        """Report the first progress to the other observers."""
        if self.progress_ms is not None:
            hooks.recovered(
                self.run, taken_ms=self.taken_ms, progress_ms=self.progress_ms, replayed=self.steps
            )


class RecoveryRecorder:
    """Writes the recovery log of one worker's session."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session
        # Functions, called on the writing thread: most entries read the store first.
        self._entries: list[Callable[[], NewEntry | None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._sessions: dict[str, Session | None] = {}

    def taken(self, takeover: Takeover) -> None:
        """Log that a run was claimed whose last worker had left it."""
        run = takeover.run
        body = msgspec.json.encode({"left_by": run.left_by, "epoch": run.epoch, "is_alone": run.is_alone})
        self._add(lambda: self._entry(Happening.TAKEN, run.id, body), WRITE_SECONDS)

    def recovered(self, takeover: Takeover) -> None:
        """Log the result of a takeover."""
        self._add(lambda: self._recovered(takeover))

    def left(self, takeover: Takeover) -> None:
        """Log that a run that was taken over is no longer executed here."""
        if takeover.progress_ms is None:
            self.recovered(takeover)
        self._add(lambda: self._completed(takeover.run.id))

    async def written(self) -> None:
        """Wait until all entries so far are in the log."""
        while self._entries or self._writing is not None:
            self._begin()
            await asyncio.sleep(0 if self._writing is None else _POLL_SECONDS)

    def _add(self, entry: Callable[[], NewEntry | None], seconds: float = 0.0) -> None:
        """Write an entry within that time, together with all that come before it is written."""
        self._entries.append(entry)
        if self._writing is None:
            # The caller may be in a run's context; the writing task must not belong to a run.
            asyncio.get_running_loop().call_later(seconds, self._begin, context=Context())

    def _begin(self) -> None:
        if self._entries and self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._entries:
                batch, self._entries = self._entries, []
                with suppress(NineLivesError):  # a log that cannot be written must not block the runs
                    await asyncio.to_thread(self._append, batch)
        finally:
            self._writing = None

    def _append(self, batch: Sequence[Callable[[], NewEntry | None]]) -> None:
        entries = [made() for made in batch]
        self._store.append_log([entry for entry in entries if entry is not None])

    def _entry(self, kind: Happening, run: str, body: bytes) -> NewEntry:
        return NewEntry(kind=kind, run=run, session=self._session, body=body)

    def _recovered(self, takeover: Takeover) -> NewEntry:
        run = takeover.run
        name = run.left_by or ""
        if name not in self._sessions:
            self._sessions[name] = self._store.read_session(name)
        died = self._sessions[name]
        body = Recovery(
            left_by=name,
            cause=died.cause if died is not None else None,
            died_ms=died.ended_ms or 0 if died is not None else 0,
            renewed_ms=died.renewed_ms if died is not None else 0,
            taken_ms=takeover.taken_ms,
            resumed_ms=takeover.resumed_ms,
            progress_ms=takeover.progress_ms,
            deaths=run.deaths,
            records=run.length,
            replayed=takeover.steps,
            decisions=takeover.decisions,
            tokens=takeover.tokens,
            redone=takeover.redone,
            verified=_verified(self._store, takeover),
            agent=run.agent,
            outcome=self._outcome(takeover),
            saved_ms=takeover.saved_ms,
            redone_kinds=dict(takeover.kinds),
        )
        return self._entry(Happening.RECOVERED, run.id, msgspec.json.encode(body))

    def _outcome(self, takeover: Takeover) -> str:
        """Return what became of a run that was taken over; empty if that is open."""
        if takeover.progress_ms is not None:
            return takeover.outcome
        row = self._store.read_run(takeover.run.id)
        if row is None or row.state is not State.ESCALATED:
            return ""
        return takeover.outcome or ("escalated" if takeover.journal is not None else "lost")

    def _completed(self, run: str) -> NewEntry | None:
        row = self._store.read_run(run)
        if row is None or not row.state.is_final:
            return None
        body = Completion(state=row.state, records=row.length)
        return self._entry(Happening.COMPLETED, run, msgspec.json.encode(body))


def _verified(store: Store, takeover: Takeover) -> Verified:
    """Check the journal (its chain was verified on loading), and compare the dedup table with it."""
    journal, summary, held = takeover.journal, JournalSummary(0, {}, ()), 0
    faults: tuple[str, ...] = ("the journal could not be read",)
    if journal is not None:
        try:
            held = len(open_in(journal.records))
            summary = summary_of(journal.records)
            rows = store.read_keys(list(summary.keys)) if summary.keys else {}
            faults = summary.faults + faults_of_keys(journal.run.id, summary.keys, rows, takeover.taken_ms)
        except Corrupt as error:
            faults = (error.what,)
    left = _left(store, takeover.run) if journal is not None else None
    if left is not None and journal is not None:
        faults += faults_of_state(left, takeover.run.length, journal.records)
    return Verified(
        records=len(journal.records) if journal is not None else 0,
        outcomes=summary.outcomes,
        resources=held,
        keys=len(summary.keys),
        checked=takeover.checked,
        stale=tuple(takeover.stale),
        faults=faults,
        compared=left is not None,
    )


def _left(store: Store, run: RunRow) -> Left | None:
    """Return what the last worker left of a run, by the recovery log; None where it does not say."""
    try:
        entries = store.read_log(run=run.id, limit=_RECENT)
        bodies = [one.body for one in entries if one.kind is Happening.LEFT and one.session == run.left_by]
        left = msgspec.json.decode(bodies[0], type=Left) if bodies else None
    except (NineLivesError, msgspec.DecodeError):
        return None
    return left if left is not None and left.head else None
