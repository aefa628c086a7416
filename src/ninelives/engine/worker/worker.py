"""A worker: one session that claims runs and executes them, for as long as it has its lease.

If the lease is lost, every execution is sealed at once: nothing more begins, nothing more is written.
There is no drain: a worker that is asked to stop and one that is killed leave the same state behind.

A suspect (a run after two worker deaths without progress) is claimed only while all other runs of this worker
have made progress, and no other run is claimed until the suspect has made progress too. So the next death can
be attributed to it. Suspects that have waited for SUSPECTS_WAIT_MS stop the worker from claiming other runs.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, NineLivesError, StoreAway, StoreUnavailable
from ninelives.core.model.run import Claims, RunRow
from ninelives.core.model.session import Cause, Evidence, Fate, Session
from ninelives.engine.lease import Lease
from ninelives.engine.machine import is_missed, machine
from ninelives.engine.spec.registry import AGENTS
from ninelives.engine.worker.executor import Executor
from ninelives.engine.worker.gc_tuning import at_ease
from ninelives.engine.worker.session import OwnSession
from ninelives.engine.worker.stranded import Stranded
from ninelives.engine.worker.takeover import RecoveryRecorder, Takeover
from ninelives.store import Store

POLL_SECONDS = 1.0
"""How often a worker polls for dead sessions, and for work without a wake-up, however busy it is."""
_LEAST_POLL_SECONDS = 0.1
"""Minimum poll interval: a worker polls sooner when another session's lease ends, but not more often."""
SUSPECTS_WAIT_MS = 5_000
"""How long suspects wait while there is other work; then the worker claims no other work until they ran."""

_MISSED = Evidence(is_gone=True, note="its machine has no such process any more")

Leave = Callable[[OwnSession], Awaitable[None]]
Create = Callable[[str], Awaitable[RunRow | None]]
"""Creates the first run, owned by the given session, and returns it; None if the session does not own it."""
Away = Callable[[StoreAway], None]
"""Called when the store accepts no new session; without this callback, StoreAway is raised instead."""


class Worker:
    """Claims and executes runs in one session."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        clock: Clock,
        session: OwnSession,
        *,
        limits: Mapping[str, int] | None = None,
        leave: Leave = OwnSession.end,
        away: Away | None = None,
    ) -> None:
        self._store, self._executor, self._clock, self._leave = store, executor, clock, leave
        self._away = away
        self._own, self._session, self._limits = session, session.id, dict(limits or {})
        self._machine = machine()
        self._woken = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], RunRow] = {}
        self._running: Counter[str] = Counter()
        self._given: dict[str, int] = {}
        self._lots: dict[str, int] = {}
        self.claims, self.first_claimed = 0, ""
        self._takeovers: dict[str, Takeover] = {}
        self._recorder = RecoveryRecorder(store, self._session)
        self._began_ms, self._has_expired = clock.boot_ms(), False
        self._stranded = Stranded(store, self._session, session.lease_ms)
        self._solo: str | None = None
        self._suspects_since_ms: int | None = None
        self._failure: BaseException | None = None
        self._has_found_nothing = False
        self._poll_at_ms = 0.0
        self._is_taking, self._ends = False, 0

    def wake(self) -> None:
        """Make the worker check for work now."""
        self._woken.set()

    async def work(
        self,
        concurrency: int,
        *,
        agents: Callable[[], Sequence[str]],
        until: Callable[[], bool],
        only: str | None = None,
        create: Create | None = None,
    ) -> None:
        """Work until the condition holds; it is checked whenever something has happened.

        `only` limits the claims to one run and its descendants. `create` creates the run to begin
        with. Raises LeaseLost; any error of the store.
        """
        with at_ease():
            is_kept = self._own.has_begun
            lease = await self._begin(agents())
            try:
                wakeups = self._executor.news.wakeups
                born = await create(self._session) if create is not None else None
                # CRASH: the run has not begun; the process that ends our session releases it.
                while not until():
                    # Before the claim: a wake-up that comes while we ask for runs is not lost.
                    self._woken.clear()
                    await self._notice(lease.halts)
                    next_due_ms: int | None = None
                    if born is not None:
                        await self._take((born,), lease, wakeups)
                        born = None
                    else:
                        next_due_ms = await self._claim(lease, concurrency, agents(), only)
                    if is_kept and not self.claims:
                        is_kept, self._poll_at_ms = False, 0.0  # the wanted run may belong to a dead session
                    if self._failure is not None:
                        raise self._failure
                    if not until():
                        await self._rest(next_due_ms)
                    await self._poll()
                if self._failure is not None:
                    raise self._failure
            finally:
                await self._end()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being executed and, at the last check, nothing was due or about to be due.

        A session whose lease has expired is observed for a while before it is ended (see
        `stores.shared.sessions`): its runs are about to be due. A worker that stopped before that would
        leave them to the next worker, which would do the same.
        """
        return not self._tasks and self._has_found_nothing and not self._has_expired

    # The session --------------------------------------------------------------------------------

    async def _begin(self, agents: Sequence[str]) -> Lease:
        seconds = POLL_SECONDS
        if not self._own.has_begun:
            with suppress(StoreUnavailable):
                # Before our own session begins: runs that the dead
                # leave are due when we claim for the first time.
                seconds = await self._executor.calls.call(self._end_the_dead)
        self._poll_at_ms = self._clock.boot_ms() + seconds * 1000
        while True:
            try:
                await self._own.begin(agents, self._lost)
                self._own.lease.learn = self._executor.governing.notice
            except StoreAway as error:
                if self._away is None:
                    raise
                self._away(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                return self._own.lease

    def _lost(self, error: NineLivesError) -> None:
        self._failure = self._failure or error
        self._seal(error.what)
        self._woken.set()

    def _seal(self, what: str) -> None:
        for task, run in self._tasks.items():
            execution = self._executor.executions.get(run.id)
            if execution is not None:
                execution.seal(LeaseLost(what, run=run.id))
            else:
                task.cancel()  # its journal is being loaded: none of its code runs

    async def _end(self) -> None:
        leave: Leave = OwnSession.end
        try:
            self._seal("this worker has stopped")
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._recorder.written()
            if self._failure is None and not self._is_taking:
                # Only a session that certainly owns no run may be kept for the next worker.
                leave = self._leave
        finally:
            await leave(self._own)

    # Claims -------------------------------------------------------------------------------------

    async def _claim(
        self, lease: Lease, concurrency: int, agents: Sequence[str], only: str | None
    ) -> int | None:
        """Claim runs that can be executed now; return when to claim again: a time, or None."""
        free = concurrency - len(self._tasks)
        self._has_found_nothing = False
        # Beside a suspect nothing is claimed: its death must be attributed to no other run.
        if free <= 0 or self._solo is not None:
            with suppress(StoreUnavailable):
                # Of no run, but of halts: they must not wait until there is room.
                await self._notice((await self._ask(0, agents, only, solo=False)).halts)
            self._is_taking = False
            return None
        # Counted before the claim: what arrives during it may be about the runs that we get.
        claims, wakeups, ends = Claims((), None), self._executor.news.wakeups, self._ends
        is_their_turn = self._suspects_have_waited()
        with suppress(StoreUnavailable):
            claims = await self._ask(0 if is_their_turn else free, agents, only, solo=False)
            is_same = ends == self._ends  # a run that ended meanwhile may have made others due
            self._has_found_nothing = is_same and not self._is_due(claims) and not claims.is_held
            self._note_suspects(claims.next_suspect_ms)
            # A death would count for every run here that has made no progress: the suspect waits for those.
            if not claims.runs and self._suspects_since_ms is not None and self._all_have_moved():
                claims = await self._ask(1, agents, only, solo=True)
                self._suspects_since_ms = None
        await self._notice(claims.halts)
        await self._take(claims.runs, lease, wakeups)
        if self._suspects_since_ms is not None and is_their_turn:
            return None  # other runs are due, but wait until those here have made progress
        dues = (claims.next_due_ms, claims.next_suspect_ms if not self._tasks else None)
        return min((due for due in dues if due is not None), default=None)

    async def _notice(self, halts: int) -> None:
        """Learn of halts before anything begins; `halts` is the version that the store has seen."""
        with suppress(StoreUnavailable):  # the next claim or renewal brings it again
            await self._executor.governing.notice(halts)

    async def _take(self, claimed: Sequence[RunRow], lease: Lease, wakeups: int) -> None:
        """Start executing runs that this session has claimed, after that many wake-ups."""
        await self._executor.load(claimed, wakeups)
        if self._failure is not None:
            return  # the lease was lost meanwhile, and what was claimed with it
        taken_ms = max((run.changed_ms for run in claimed), default=0)
        if any(run.left_by is not None for run in claimed):
            with suppress(StoreUnavailable):  # the runs are ours all the same
                taken_ms = self._store.now_ms()
        for run in claimed:
            self._start(run, lease, taken_ms)
        self._is_taking = False

    def _is_due(self, claims: Claims) -> bool:
        """Return whether runs were claimed, or runs are due that were not claimed (suspects)."""
        if claims.runs:
            return True
        dues = [due for due in (claims.next_due_ms, claims.next_suspect_ms) if due is not None]
        return bool(dues) and min(dues) <= self._store.now_ms()

    async def _ask(self, free: int, agents: Sequence[str], only: str | None, *, solo: bool) -> Claims:
        # In turn: an agent with many runs must not starve the others.
        room = {name: min(free, self._room(name, free)) for name in sorted(agents, key=self._priority)}
        queues = sorted({AGENTS[name].queue for name in agents})
        self._is_taking = True  # if we are cut off before `_take` is done, the session may own runs
        return await self._executor.calls.call(
            lambda store: store.claim_runs(
                self._session, free, room, queues=queues, host=self._machine, only=only, solo=solo
            )
        )

    def _room(self, agent: str, free: int) -> int:
        limit = self._limits.get(agent)
        return free if limit is None else limit - self._running[agent]

    def _priority(self, agent: str) -> tuple[int, int]:
        """Sort key of agents: least recently claimed first; the initial order differs per worker."""
        lot = self._lots.get(agent)
        if lot is None:
            lot = self._lots[agent] = zlib.crc32(f"{self._session}/{agent}".encode())
        return self._given.get(agent, 0), lot

    def _all_have_moved(self) -> bool:
        return all(self._has_moved(run) for run in self._tasks.values())

    def _has_moved(self, run: RunRow) -> bool:
        """Return whether a run has made progress since it was claimed here."""
        takeover = self._takeovers.get(run.id)
        if takeover is not None and takeover.progress_ms is not None:
            return True
        execution = self._executor.executions.get(run.id)
        return execution is not None and (execution.counts.executed > 0 or execution.turn > run.turn)

    def _suspects_have_waited(self) -> bool:
        since_ms = self._suspects_since_ms
        return since_ms is not None and self._clock.boot_ms() - since_ms > SUSPECTS_WAIT_MS

    def _note_suspects(self, due_ms: int | None) -> None:
        if due_ms is None or due_ms > self._store.now_ms():
            self._suspects_since_ms = None
        elif self._suspects_since_ms is None:
            self._suspects_since_ms = self._clock.boot_ms()

    def _start(self, run: RunRow, lease: Lease, taken_ms: int) -> None:
        if run.is_alone:
            self._solo = run.id  # a suspect: nothing is claimed beside it until it has made progress
        self.first_claimed = self.first_claimed or run.id
        self.claims += 1
        self._given[run.agent] = self.claims
        takeover = None
        if run.left_by is not None:
            takeover = self._takeovers[run.id] = Takeover(run, taken_ms, self._clock, self._moved)
            self._recorder.taken(takeover)
        task = asyncio.create_task(self._executor.execute(run, lease, takeover))
        self._tasks[task] = run
        self._running[run.agent] += 1
        task.add_done_callback(self._done)

    def _moved(self, takeover: Takeover) -> None:
        self._recorder.recovered(takeover)
        if self._executor.hooks is not None:
            takeover.report(self._executor.hooks)
        if self._solo == takeover.run.id:
            self._solo = None
            self._woken.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        run = self._tasks.pop(task)
        self._ends += 1
        self._has_found_nothing = False  # its end may have made other runs due
        self._running[run.agent] -= 1
        if self._solo == run.id:
            self._solo = None
        takeover = self._takeovers.pop(run.id, None)
        if takeover is not None and not task.cancelled():
            self._recorder.left(takeover)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._woken.set()

    async def _rest(self, next_due_ms: int | None) -> None:
        left_ms = self._poll_at_ms - self._clock.boot_ms()
        if next_due_ms is not None:
            with suppress(StoreUnavailable):  # then the next poll finds it
                left_ms = min(left_ms, next_due_ms - self._store.now_ms())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_ms / 1000)):
                await self._woken.wait()

    async def _poll(self) -> None:
        """If it is time, poll for dead sessions, and for news whose wake-up was lost."""
        if self._clock.boot_ms() < self._poll_at_ms:
            return
        self._executor.news.on_wakeup()
        seconds = POLL_SECONDS
        executed = {run.id for run in self._tasks.values()}  # nothing is claimed before this method returns
        with suppress(StoreUnavailable):
            seconds = await asyncio.to_thread(self._check_store, executed)
        self._poll_at_ms = self._clock.boot_ms() + seconds * 1000

    def _check_store(self, executed: AbstractSet[str]) -> float:
        """Give back runs that are ours and not executed, and end dead sessions; returns the pause."""
        self._stranded.check(executed, self._clock.boot_ms())
        return self._end_the_dead(self._store)

    def _end_the_dead(self, store: Store) -> float:
        """End dead sessions; returns the seconds until the next poll: when the next lease ends, if soon."""
        store.end_sessions(None, Cause.DIED)
        others = [one for one in store.list_sessions() if one.id != self._session]
        self._end_the_missed(others)
        # After one lease we no longer count expired sessions: nothing here waits for a session that no worker
        # may end.
        is_early = self._clock.boot_ms() < self._began_ms + self._own.lease_ms
        self._has_expired = is_early and any(one.left_ms <= 0 for one in others)
        next_end_seconds = min((one.left_ms for one in others), default=self._own.lease_ms) / 1000
        return min(POLL_SECONDS, max(_LEAST_POLL_SECONDS, next_end_seconds))

    def _end_the_missed(self, others: Sequence[Session]) -> None:
        """End sessions whose process is gone from this machine: not every store has a lock that shows it.

        See docs/decisions/0009.
        """
        missed = [
            one.id
            for one in others
            # A worker with a keeper is left to its supervisor, which also ends what the worker started.
            if not one.keeper and one.fate is Fate.LIVES and is_missed(one.host, one.pid)
        ]
        if missed:
            self._store.end_sessions(missed, Cause.DIED, evidence=dict.fromkeys(missed, _MISSED))
