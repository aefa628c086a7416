"""Planted bugs: each breaks one load-bearing line of the engine in this process, and the judge must turn red.

A simulation that finds nothing proves nothing; one that finds every bug of this list, and nothing without
them, has eyes where it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from ninelives.core.journal.replay import Replay
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.key import KeyState
from ninelives.core.model.run import Kind, Record
from ninelives.core.model.session import Cause, Evidence, Session
from ninelives.core.rules import deaths, dedup, run_rules
from ninelives.engine.agent import compensations
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.ticket import NO_EXTRAS, Ticket, commit_of, deliver
from ninelives.engine.context import StepPosition
from ninelives.engine.lease import Lease
from ninelives.engine.protected import doubt
from ninelives.engine.protected.protected_call import ProtectedCall
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.output_buffer import OutputBuffer
from ninelives.engine.spec import transactions
from tests.simulation.store import Archive

MUTANTS: dict[str, Callable[[], Iterator[None]]] = {}


def _mutant(made: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    MUTANTS[made.__name__] = made
    return made


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug, and dig it out again."""
    yield from MUTANTS[name]()


# Ownership ------------------------------------------------------------------------------------------


@_mutant
def epoch_unchecked() -> Iterator[None]:
    """Whoever knows the journal's end may write, owner or not."""
    original = run_rules.committed

    def committed(run: Any, commit: Any, now_ms: int) -> Any:
        return original(run, replace(commit, epoch=run.epoch), now_ms)

    with patch.object(run_rules, "committed", committed):
        yield


@_mutant
def fence_unheeded() -> Iterator[None]:
    """A worker that is told that the run is another's goes on as if nothing were the matter."""
    original = Execution._judge

    def judge(self: Any, verdict: Any, error: Any) -> None:
        if verdict is None or verdict.outcome is not Outcome.FENCED:
            original(self, verdict, error)

    with patch.object(Execution, "_judge", judge):
        yield


@_mutant
def lease_by_local_clock() -> Iterator[None]:
    """Whoever looks for the dead judges their leases by his own wall clock."""
    original = Archive.end_sessions

    def end_sessions(
        self: Archive,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
    ) -> list[Session]:
        if sessions is None:
            now_ms, live = self._machine.current.process.now_ms(), self.list_sessions()
            sessions = [one.id for one in live if one.renewed_ms + one.lease_ms < now_ms]
            cause = Cause.EXPIRED
        return original(self, sessions, cause, evidence=evidence)

    with patch.object(Archive, "end_sessions", end_sessions):
        yield


@_mutant
def lease_unheeded() -> Iterator[None]:
    """Bodies begin whether or not the lease has been renewed."""
    original = Lease.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._begin_ms, self.until_ms = 1e12, 1e12

    with patch.object(Lease, "__init__", init):
        yield


# Durability -----------------------------------------------------------------------------------------


@_mutant
def ack_before_commit() -> Iterator[None]:
    """Whoever waits is told before the transaction, to look fast."""
    original = Committer._write

    def write(self: Any, groups: list[list[Ticket]]) -> None:
        plain = [group for group in groups if all(ticket.extras is NO_EXTRAS for ticket in group)]
        for group in plain:
            for ticket in group:
                ticket.answer(Verdict(ticket.tail.run, Outcome.COMMITTED))
            deliver(group)
            self._batch = [ticket for ticket in self._batch if ticket not in group]
        for group in plain:
            commit = commit_of(group)
            (verdict,) = self._until_available(self._store.commit, [commit])
            group[0].tail.move(commit, verdict.outcome)
        original(self, [group for group in groups if group not in plain])

    with patch.object(Committer, "_write", write):
        yield


@_mutant
def told_too_early() -> Iterator[None]:
    """Outcomes are told before they are durable."""

    async def durable(self: Any, written: Any) -> Any:
        return Verdict(self.run.id, Outcome.COMMITTED)

    with patch.object(Execution, "durable", durable):
        yield


@_mutant
def barrier_skipped() -> Iterator[None]:
    """Actions begin before what they rest on is durable."""

    async def barrier(self: Any, **_: Any) -> None:
        return

    with patch.object(Execution, "barrier", barrier):
        yield


# Replay ---------------------------------------------------------------------------------------------


@_mutant
def outcome_forgotten() -> Iterator[None]:
    """One recorded outcome in three is not found, so its step is executed again."""
    original = Replay._read_outcome

    def read(self: Any, record: Record) -> None:
        if record.seq % 3:
            original(self, record)

    with patch.object(Replay, "_read_outcome", read):
        yield


@_mutant
def key_per_attempt() -> Iterator[None]:
    """The key depends on who owns the run."""
    original = StepPosition.key

    def key(self: Any) -> str:
        return f"{original(self)}:{self.execution.run.epoch}" if self.name == "sim.write" else original(self)

    with patch.object(StepPosition, "key", key):
        yield


# What must not be repeated --------------------------------------------------------------------------


@_mutant
def intent_not_awaited() -> Iterator[None]:
    """The body begins while its intent is still on its way to the store."""
    original = ProtectedCall.write

    async def write(self: Any, drafts: Any, extras: Any) -> Any:
        if [draft[0] for draft in drafts] == [Kind.INTENT] and not extras.keys:
            self.execution.write(drafts, extras)
            return Verdict(self.execution.run.id, Outcome.COMMITTED)
        return await original(self, drafts, extras)

    with patch.object(ProtectedCall, "write", write):
        yield


@_mutant
def doubt_voided_unasked() -> Iterator[None]:
    """What may have happened is taken for not done, and started again."""
    original = doubt.settle

    async def settle(act: Any) -> Any:
        start = act.standing.start
        if act.late is not None:
            return await original(act)
        await act.record(Kind.VOIDED, act.releases(), n=start.n, why="it is probably fine")
        return None

    with patch.object(doubt, "settle", settle):
        yield


@_mutant
def not_happened_believed_early() -> Iterator[None]:
    """What the world does not show yet is taken for not happened, though it may be on its way."""
    with patch.object(doubt, "ripe_ms", lambda *_: 0):
        yield


@_mutant
def dedup_not_unique() -> Iterator[None]:
    """A key can be reserved by two at once."""
    original = dedup.reserved

    def reserved(known: Any, op: Any, run: str, now_ms: int) -> Any:
        free = known is None or known.run == run or known.state is not KeyState.RESERVED
        return original(known if free else None, op, run, now_ms)

    with patch.object(dedup, "reserved", reserved):
        yield


@_mutant
def orphan_set_free() -> Iterator[None]:
    """The key of a run that ended in doubt is free for the next one."""

    def orphaned(known: Any, now_ms: int) -> Any:
        return replace(known, state=KeyState.FREE, changed_ms=now_ms)

    with patch.object(dedup, "orphaned", orphaned):
        yield


@_mutant
def transaction_not_deduplicated() -> Iterator[None]:
    """A transactional body is executed whether or not its row says that it was."""
    original = transactions._claim

    def claim(conn: Any, mark: str) -> None:
        original(conn, mark)

    with patch.object(transactions, "_claim", claim):
        yield


# Waiting and the rest -------------------------------------------------------------------------------


@_mutant
def news_lost_by_parking() -> Iterator[None]:
    """What happens to a run while it is being parked does not wake it."""
    original = run_rules._changed

    def changed(run: Any, commit: Any, now_ms: int) -> Any:
        if hasattr(commit.change, "news_seen"):
            commit = replace(commit, change=replace(commit.change, news_seen=run.news))
        return original(run, commit, now_ms)

    with patch.object(run_rules, "_changed", changed):
        yield


@_mutant
def runs_of_the_dead_kept() -> Iterator[None]:
    """The runs of a session that has ended stay its own."""
    original = deaths.released

    def released(run: Any, cause: Any, now_ms: int, *, has_progressed: bool) -> Any:
        after = original(run, cause, now_ms, has_progressed=has_progressed)
        return replace(after, due_ms=None)

    with patch.object(deaths, "released", released):
        yield


@_mutant
def output_not_retracted() -> Iterator[None]:
    """What a dead attempt has emitted stays beside what the next one emits."""
    with patch.object(OutputBuffer, "begin", lambda *_: None):
        yield


@_mutant
def undone_in_order() -> Iterator[None]:
    """Compensations run in the order in which they were registered."""
    original = compensations.last_stretch

    def last_stretch(journal: Any) -> Any:
        stretch, undoing, pending = original(journal)
        return stretch, undoing, pending[::-1]

    with patch.object(compensations, "last_stretch", last_stretch):
        yield
