"""The executor: takes a claimed run through its turns, as far as it goes.

Starting and recovering a run are the same code: load the journal, call the agent, return what is recorded,
execute what is not. If we die anywhere in here, the next worker does exactly that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import UnsetType

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    Divergence,
    InvariantViolation,
    KeyMissing,
    LeaseLost,
    NineLivesError,
    PolicyFailed,
    RunCancelled,
    StaleResource,
    StoreError,
    StoreUnavailable,
    TimedOut,
    UnknownAgent,
    UsageError,
)
from ninelives.core.journal.replay import write_superseded
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Journal, Kind, NewRun, RunRow, State
from ninelives.core.rules import run_rules
from ninelives.engine.agent import compensations, declassify, resources, signals
from ninelives.engine.agent.basics import NextTurn
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.sealing import allow_secrets
from ninelives.engine.commit.ticket import Draft, Extras, Tail, charging
from ninelives.engine.governor import Governing
from ninelives.engine.hooks import Hooks, beside, living
from ninelives.engine.lease import ENDLESS, Endless, Lease
from ninelives.engine.model_calls import Asking
from ninelives.engine.protected import open_starts
from ninelives.engine.run import lookup
from ninelives.engine.run.execution import UNAVAILABLE_SECONDS, Execution
from ninelives.engine.run.intents import Intents
from ninelives.engine.run.lifecycle import Phase
from ninelives.engine.run.tasks import clear, run_code
from ninelives.engine.run.waits import Parked
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.callbacks import Unruly, call_plain
from ninelives.engine.spec.registry import AGENTS, Agent
from ninelives.engine.step import threads
from ninelives.engine.step.reservations import unsettled
from ninelives.engine.worker import ending, escalation, quarantine, run_retry
from ninelives.engine.worker.event_loop import StoreCaller
from ninelives.engine.worker.news import NewsReader
from ninelives.engine.worker.takeover import Takeover
from ninelives.store import Store

INLINE_RECORDS = 300
"""Journals with more records are loaded in a thread, so as not to block the event loop."""

_MOST = 10_000
_KINDS: dict[type[NineLivesError], ItemKind] = dict.fromkeys((Corrupt, KeyMissing), ItemKind.DAMAGE)
_KINDS |= {StaleResource: ItemKind.RESOURCE, PolicyFailed: ItemKind.POLICY}


class ArgumentBlobs:
    """The blobs that a turn's arguments were read from: the next turn need not write them again."""

    def __init__(self, _: Execution) -> None:
        self.blobs: set[bytes] = set()


class Executor:
    """Executes claimed runs on one event loop."""

    def __init__(
        self,
        store: Store,
        commits: LoopCommits,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        hooks: Hooks | None = None,
        calls: StoreCaller | None = None,
        lives: int | None = None,
        governing: Governing | None = None,
        asking: Asking | None = None,
    ) -> None:
        self._store, self._commits, self._loop, self._clock = store, commits, loop, clock
        self._asking, self.governing = asking, governing or Governing()
        self.governing.changed = self._wake_held
        self.calls = calls or StoreCaller(store)
        self._intents, self.hooks, self._lives = Intents(loop), hooks, lives
        self.executions: dict[str, Execution] = {}
        self.news = NewsReader(store, loop, self.executions)
        self._held: dict[str, tuple[Lease | Endless, Takeover | None]] = {}
        self.completed: Callable[[str, Agent, bytes], None] = lambda *_: None
        self._loaded: dict[str, Journal] = {}
        self.born: dict[str, NewRun] = {}
        """Runs that this process has just created: their journals are known without reading the store."""
        self._wakeups: dict[str, int] = {}
        """By run: how many wake-ups had arrived before its row was read. Later ones may be about the run."""

    async def load(self, claimed: Sequence[RunRow], wakeups: int) -> None:
        """Load the journals of runs that are about to be executed; the short ones in one read.

        `wakeups` is how many had arrived before they were claimed.
        """
        self._wakeups.update((run.id, wakeups) for run in claimed)
        short = [run.id for run in claimed if _is_short(run) and run.id not in self.born]
        if len(short) > 1:
            with suppress(StoreUnavailable):  # then each is read separately, once the store is available
                for journal in await self.calls.call(lambda store: store.load_journals(short)):
                    if isinstance(journal, Journal):
                        self._loaded[journal.run.id] = journal

    def _newborn(self, run: RunRow) -> Journal | None:
        """Return the journal of a run that this process has just created."""
        new = self.born.pop(run.id, None)
        if new is None or run.news:
            return None  # with news, it has signals or items that only the store knows
        made, records = run_rules.created(new, run.number, run.created_ms)
        return Journal(run, 0, records, (), ()) if run.head == made.head else None  # else it has another one

    async def _whole(self, journal: Journal) -> Journal:
        is_whole = large_bodies.is_whole(journal.records)
        return journal if is_whole else await self.calls.call(large_bodies.restored, journal)

    def forget(self, run: str) -> None:
        """Forget the known journal of a run that this process created."""
        self.born.pop(run, None)
        self._wakeups.pop(run, None)

    async def execute(
        self, run: RunRow, lease: Lease | Endless = ENDLESS, takeover: Takeover | None = None
    ) -> None:
        """Execute a run as far as it goes: until it ends, parks, is escalated, or belongs to another owner.

        Raises UnknownAgent when its agent is not loaded; StoreError when the store itself fails.
        """
        agent = AGENTS.get(run.agent)
        if agent is None:
            raise UnknownAgent(f"agent {run.agent!r} is not loaded here", run=run.id)
        allow_secrets(self._store)
        wakeups = self._wakeups.pop(run.id, self.news.wakeups)
        journal = await self._read(agent, run, wakeups)
        if journal is not None and journal.run.epoch == run.epoch and run_retry.is_retried(journal):
            await self._supersede(journal)
            journal = await self.calls.call(large_bodies.load, run.id)
        if journal is None or journal.run.epoch != run.epoch:
            return  # damaged; or we were suspended, and the run has another owner, which may have ended it
        with living(self.hooks, run, self._store):
            lives = self._lives or agent.lives
            if run.solo_deaths >= lives and not run.cancelling:  # to cancel calls no agent code
                if takeover is not None:
                    # Read and valid; the quarantine reports its outcome.
                    takeover.journal, takeover.outcome = journal, "quarantined"
                left = Execution(journal, *self._parts(agent))
                await quarantine.quarantine(self.calls, self._commits, left)
                return
            held = self._held[run.id] = lease, takeover
            following: Journal | None = journal
            is_back = True  # only at first: in later turns its resources were held all the time
            try:
                while following is not None:
                    following = await self._take_turn(agent, following, wakeups, is_back=is_back)
                    is_back, wakeups = False, self._wakeups.pop(run.id, self.news.wakeups)
            finally:
                if self._held.get(run.id) is held:  # else it was parked and is already claimed here again
                    del self._held[run.id]

    async def _read(self, agent: Agent, run: RunRow, wakeups: int) -> Journal | None:
        """Read the journal of a claimed run; None when it is damaged and a person must decide."""
        loaded, new = self._loaded.pop(run.id, None), self._newborn(run)
        while True:
            try:
                if loaded is not None and loaded.run.epoch == run.epoch:
                    return await self._whole(loaded)
                if new is not None and await self._is_unchanged(run, wakeups):
                    return await self._whole(new)
                if _is_short(run):
                    return await self.calls.call(large_bodies.load, run.id)
                return await asyncio.to_thread(large_bodies.load, self._store, run.id)
            except StoreUnavailable:  # wait until it is available: nothing of the run has begun
                await asyncio.sleep(UNAVAILABLE_SECONDS)
            except Corrupt:
                return await self._salvaged(agent, run)

    async def _is_unchanged(self, run: RunRow, wakeups: int) -> bool:
        """Return whether nothing has happened to a run since it was created and claimed."""
        if wakeups == self.news.wakeups:
            return True
        return await self.calls.call(lambda store: store.read_run(run.id)) == run

    async def _salvaged(self, agent: Agent, run: RunRow) -> Journal | None:
        """Continue from the valid prefix of a damaged journal; None when a person must decide.

        See docs/decisions/0008.
        """
        try:
            # CRASH: inside, nothing has changed; after it, the next owner finds a valid journal.
            await asyncio.to_thread(self._store.salvage, run.id, run.epoch)
            return await asyncio.to_thread(large_bodies.load, self._store, run.id)
        except LeaseLost:
            return None
        except Corrupt as error:
            damaged = Execution(_empty(run), *self._parts(agent))
            items = await self.calls.call(lambda one: one.list_inbox(run=run.id, answered=True, limit=_MOST))
            if await escalation.settle(damaged, items):
                await self._give_up(damaged, error)
            return None

    async def _supersede(self, journal: Journal) -> None:
        """Record that a failed run is retried: the outcomes that made it fail no longer count."""
        # CRASH: the journal still ends with its END record; the next owner finds and records the same.
        await asyncio.to_thread(run_retry.retry_children, self._store, journal)  # once recorded, too late
        steps = await asyncio.to_thread(run_retry.superseded, self._store, journal)
        body = write_superseded(steps)
        await self._commits.commit(Tail(journal.run), [(Kind.SUPERSEDED, "", body)])

    def _parts(
        self, agent: Agent, lease: Lease | Endless = ENDLESS, takeover: Takeover | None = None
    ) -> tuple[Any, ...]:
        hooks = self.hooks if takeover is None else beside(self.hooks, takeover)
        ours = self._store, self._commits, self._loop, self._clock, self._intents, agent.is_pipelined
        return *ours, hooks, lease, self.governing, self._asking

    def _wake_held(self) -> None:
        """Make calls that the governor held ask again. Called on any thread."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for execution in tuple(self.executions.values()):
            execution.wake_waits()

    def _execution(self, agent: Agent, journal: Journal) -> Execution:
        lease, takeover = self._held[journal.run.id]
        execution = Execution(journal, *self._parts(agent, lease, takeover))
        if takeover is not None:
            takeover.begin(journal, execution.replay.intents)
        return execution

    async def _take_turn(
        self, agent: Agent, journal: Journal, wakeups: int, *, is_back: bool
    ) -> Journal | None:
        execution = self._execution(agent, journal)
        if execution.replay.is_undoing:
            await self._undo(agent, journal, wakeups)
            return None
        self._enter(execution, wakeups)
        following = await self._live(execution, agent, journal, is_back=is_back)
        return await self._reloaded(execution) if execution.is_undoing else following

    async def _undo(self, agent: Agent, journal: Journal, wakeups: int) -> None:
        """Call the compensations of a run that failed or was cancelled, and end it."""
        stretch, undoing, pending = compensations.last_stretch(journal)
        execution = self._execution(agent, stretch)
        execution.replay.taint = declassify.of_records(journal.records)
        execution.undo()
        self._enter(execution, wakeups)
        error = None if isinstance(undoing.error, UnsetType) else bytes(undoing.error)
        try:
            execution.apply_controls(journal.run)
            if journal.items and not await escalation.settle(execution, journal.items):
                return
            await run_code(execution, compensations.undo(execution, pending))
            if execution.sealed is not None:
                await clear(execution)
                await self._give_up(execution, execution.sealed)
            else:
                await ending.finish(execution, undoing.state, error)
        except (BadRecord, Corrupt) as damage:
            await self._give_up(execution, damage)
        finally:
            self._leave(execution)

    async def _live(
        self, execution: Execution, agent: Agent, journal: Journal, *, is_back: bool
    ) -> Journal | None:
        try:
            # First: the code of a run that is being cancelled is not called again, only its compensations.
            if journal.run.cancelling:
                await ending.cancel(execution)
                return None
            execution.apply_controls(journal.run)
            if agent.timeout_seconds is not None:
                execution.limit(agent.timeout_seconds, self._store.now_ms)
            if journal.items and not await escalation.settle(execution, journal.items):
                return None
            if is_back and execution.replay.kept and not await self._recheck(execution, agent, journal):
                return None
            outcome = await drive(execution, agent, journal)
            return await self._conclude(execution, agent, journal, outcome)
        except (BadRecord, Corrupt) as error:
            await self._give_up(execution, error)  # only this run stops; the others continue
            return None
        except Unruly as error:
            await ending.fail(execution, error)
            return None
        finally:
            self._leave(execution)

    def _enter(self, execution: Execution, wakeups: int) -> None:
        """Register an execution, which gets news from now on; read what came since its row was read."""
        # Registered before the news is read: what comes after that read reaches the execution by itself.
        self.executions[execution.run.id] = execution
        if wakeups != self.news.wakeups:
            self.news.read()

    def _leave(self, execution: Execution) -> None:
        """Unregister an execution, unless the run has been claimed here again meanwhile."""
        execution.leave()
        if self.executions.get(execution.run.id) is execution:
            del self.executions[execution.run.id]

    async def _recheck(self, execution: Execution, agent: Agent, journal: Journal) -> bool:
        """Check again the resources of a run that returns; False when the run does not continue here."""
        try:
            await resources.recheck(execution, agent, journal)
        except Exception as error:  # noqa: BLE001 (the agent's own handler: its error is the run's)
            await ending.fail(execution, error)
            return False
        if execution.sealed is not None:
            await self._give_up(execution, execution.sealed)
        return execution.sealed is None

    async def _conclude(
        self, execution: Execution, agent: Agent, journal: Journal, task: asyncio.Task[Any] | None
    ) -> Journal | None:
        if task is None:
            await clear(execution)
            if execution.sealed is not None:
                await self._give_up(execution, execution.sealed)
            return None
        if execution.stopped is not None:
            await self._stop(execution, execution.stopped)
            return None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, InvariantViolation):
            raise error  # our own mistake, and no failure of the run: the worker stops
        if error is not None and execution.hooks is not None:
            execution.hooks.agent_raised(execution, error)
        if (repeated := compensations.repeated_at_end(execution, task)) is not None:
            execution.seal(repeated)
            await clear(execution)
            await self._give_up(execution, repeated)
            return None
        result = task.result() if error is None else None
        if not await self._settle_leftovers(execution, is_turn=isinstance(result, NextTurn)):
            return None
        if error is not None:
            await ending.fail(execution, error)
            return None
        try:
            if isinstance(result, NextTurn):
                return await self._next_turn(execution, agent, result)
            value = call_plain("the result's own code", agent.result.round, result)[0]
            await ending.complete(execution, value)
            if execution.sealed is None:
                self.completed(journal.run.id, agent, value)
        except UsageError as refused:
            refused.run = journal.run.id
            await ending.fail(execution, refused)
        return None

    async def _settle_leftovers(self, execution: Execution, *, is_turn: bool) -> bool:
        """Settle open starts that the code no longer calls; False when the run or turn does not end here.

        A turn does not end while a recorded effect is unclaimed: the next one would not find it.
        """
        starts = open_starts.unclaimed(execution)
        missed = lookup.passed_over(execution) if is_turn and execution.is_resumed else None
        if missed is None and not starts:
            return True
        if missed is not None:
            execution.seal(lookup.left_in_turn(missed, execution.run.id))
        elif Phase.LEAVING in execution.phase:  # some of its code still runs: nothing may begin beside it
            execution.seal(open_starts.left_behind(starts[0], execution.run.id))
        else:
            await run_code(execution, open_starts.settle(execution, starts))
        if execution.sealed is None:
            return True
        await clear(execution)
        await self._give_up(execution, execution.sealed)
        return False

    async def _next_turn(self, execution: Execution, agent: Agent, following: NextTurn) -> Journal | None:
        """Commit the snapshot that the next turn starts from: one commit, which also ends the old turn."""
        snapshot, made = agent_arguments.encode(agent, following.args, following.kwargs)
        stored = execution.component(ArgumentBlobs).blobs
        new = [content for name, content in made.items() if name not in stored]
        # CRASH: the old turn is still the current one: the next owner replays it to its end.
        turn: Draft = (Kind.TURN, "", snapshot, new)
        verdict = await execution.write([turn, *_carried(execution)], charging(unsettled(execution)))
        if execution.sealed is not None:
            await self._give_up(execution, execution.sealed)
            return None
        if verdict.error is not None:
            raise verdict.error
        return await self._reloaded(execution)

    async def _reloaded(self, execution: Execution) -> Journal | None:
        """Read a run's journal again; None when the run is no longer ours."""
        wakeups, run = self.news.wakeups, execution.run
        journal = await self.calls.call(_reload, run)
        if journal is not None:
            self._wakeups[run.id] = wakeups
        return journal

    async def _stop(self, execution: Execution, why: RunCancelled | TimedOut) -> None:
        """End a run that was cancelled or took too long."""
        if isinstance(why, RunCancelled):
            await ending.cancel(execution)
        else:
            await ending.fail(execution, why)

    async def _give_up(self, execution: Execution, why: NineLivesError) -> None:
        """Handle the reason why an execution was sealed: end, park or escalate the run.

        Does nothing if the lease was lost: the new owner continues. Raises errors of the store itself.
        """
        if isinstance(why, LeaseLost):
            return
        if why is execution.stopped:
            await self._stop(execution, execution.stopped)
            return
        if isinstance(why, Parked):
            # CRASH: not parked; the next owner replays up to here and parks it.
            await self._commits.commit(execution.tail, execution.take_deferred(), Extras(change=why.change))
            return
        if isinstance(why, StoreError) and not isinstance(why, Corrupt | BadRecord):
            raise why  # not the run's fault: the worker stops, and its runs go to others
        if execution.tail.is_over:
            # The store refused a commit and wrote nothing of it: the run's row is still valid.
            row = await self.calls.call(lambda store: store.read_run(execution.run.id))
            if row is None or row.epoch != execution.tail.epoch or row.state is not State.RUNNING:
                return
            execution.take_row(row)
        kind = _KINDS.get(type(why), ItemKind.DIVERGENCE)
        await escalation.escalate(
            self.calls, self._commits, execution, kind, escalation.request_about(why), step=why.step
        )


async def drive(execution: Execution, agent: Agent, journal: Journal) -> asyncio.Task[Any] | None:
    """Run the agent's code; None when the execution was sealed before the code ended."""
    try:
        body, run, parts = journal.records[0].body, journal.run.id, dict[bytes, bytes]()
        if agent_arguments.has_parts(body):
            parts = await asyncio.to_thread(agent_arguments.parts, execution.store, body)
        args, kwargs, execution.component(ArgumentBlobs).blobs = call_plain(
            "an argument's own code", agent_arguments.decode, agent, body, run, parts
        )
    except (Divergence, Corrupt) as error:
        execution.seal(error)
        return None
    if agent.is_async:
        code = call_plain("the agent's code", agent.function, *args, **kwargs)
    else:
        code = threads.run_agent(execution, lambda: agent.function(*args, **kwargs))
    return await run_code(execution, code)


def _carried(execution: Execution) -> list[Draft]:
    """Return the records that follow the snapshot at the start of the next turn."""
    drafts: list[Draft] = []
    compensations.write_waiting(execution)
    if execution.replay.kept:
        drafts += [*resources.carried(execution), *compensations.carried(execution)]
    if execution.replay.returned:
        drafts += signals.carried(execution)
    return [*drafts, *declassify.carried(execution)]


def _reload(store: Store, run: RunRow) -> Journal | None:
    """Load a run's journal; None when the run has another owner, which may have ended and pruned it."""
    row = store.read_run(run.id)
    if row is None or row.epoch != run.epoch:
        return None
    journal = large_bodies.load(store, run.id)
    return journal if journal.run.epoch == run.epoch else None  # else we were suspended in between


def _is_short(run: RunRow) -> bool:
    """Return whether a run's current turn (all that is read) has few records."""
    return run.length - run.turn_seq <= INLINE_RECORDS


def _empty(run: RunRow) -> Journal:
    return Journal(run, run.length, (), (), ())
