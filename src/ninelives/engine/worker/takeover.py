"""Takeovers: what was recovered of a dead worker's run, and its first progress, for the recovery log.

Entries are written in a thread, in batches, and no run waits for them. Nor do they compete with a recovered
run for the store: a claim is logged together with the run's first progress, or WRITE_SECONDS later. If we die
before they are written, these entries are lost; the worker that ends our session logs that we died while we
owned the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context

import msgspec

from ninelives.core.clock import Clock
from ninelives.core.errors import Corrupt, NineLivesError
from ninelives.core.journal.recovery_log import Completion, Recovery, Verified
from ninelives.core.journal.resources import open_in
from ninelives.core.model.log_entry import Happening, NewEntry
from ninelives.core.model.run import Journal, RunRow
from ninelives.core.model.session import Session
from ninelives.core.rules import deaths
from ninelives.core.rules.recovery_check import Account, account_of, faults_of_keys
from ninelives.core.values.token_usage import tokens_in
from ninelives.engine.hooks import Hooks, Observer, RecordsCommitted, ResourceChecked, StepReplayed
from ninelives.store import Store

_MOST_REDONE = 20
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
        self.progress_ms: int | None = None
        self.journal: Journal | None = None
        self.steps = self.decisions = self.tokens = 0
        self.redone: tuple[str, ...] = ()
        self.checked = 0
        self.stale: list[str] = []

    def begin(self, journal: Journal, redone: Iterable[str]) -> None:
        """Keep the journal of the first execution, and the steps that were started without an outcome."""
        if self.journal is None:
            self.journal, self.redone = journal, tuple(redone)[:_MOST_REDONE]

    def replayed(self, event: StepReplayed) -> None:
        """Count a step whose outcome was found in the journal."""
        self.steps += 1
        if event.declared.is_decision:
            self.decisions += 1
            self.tokens += tokens_in(bytes(event.record.body.v or b""))

    def resource_checked(self, event: ResourceChecked) -> None:
        """Count the check of a resource that the run holds; note a stale one."""
        self.checked += 1
        if event.stale is not None:
            self.stale.append(f"{event.target}: {event.stale}")

    def committed(self, event: RecordsCommitted) -> None:
        """Note the time of the first durable progress, on the store's clock: our wall clock may be wrong."""
        is_progress = event.change is not None or any(
            kind not in deaths.NO_PROGRESS for kind, _ in event.records
        )
        if self.progress_ms is None and is_progress:
            self.progress_ms = self.taken_ms + self._clock.boot_ms() - self._since_ms
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
            progress_ms=takeover.progress_ms,
            deaths=run.deaths,
            records=run.length,
            replayed=takeover.steps,
            decisions=takeover.decisions,
            tokens=takeover.tokens,
            redone=takeover.redone,
            verified=_verified(self._store, takeover),
        )
        return self._entry(Happening.RECOVERED, run.id, msgspec.json.encode(body))

    def _completed(self, run: str) -> NewEntry | None:
        row = self._store.read_run(run)
        if row is None or not row.state.is_final:
            return None
        body = Completion(state=row.state, records=row.length)
        return self._entry(Happening.COMPLETED, run, msgspec.json.encode(body))


def _verified(store: Store, takeover: Takeover) -> Verified:
    """Check the journal (its chain was verified on loading), and compare the dedup table with it."""
    journal, account, held = takeover.journal, Account(0, {}, ()), 0
    faults: tuple[str, ...] = ("the journal could not be read",)
    if journal is not None:
        try:
            held = len(open_in(journal.records))
            account = account_of(journal.records)
            rows = store.read_keys(list(account.keys)) if account.keys else {}
            faults = account.faults + faults_of_keys(journal.run.id, account.keys, rows, takeover.taken_ms)
        except Corrupt as error:
            faults = (error.what,)
    return Verified(
        records=len(journal.records) if journal is not None else 0,
        outcomes=account.outcomes,
        resources=held,
        keys=len(account.keys),
        checked=takeover.checked,
        stale=tuple(takeover.stale),
        faults=faults,
    )
