"""The façade: a runtime owns a store, a committer and workers, and returns handles to runs.

`BlockingRuntime` is the same for plain code. It shares this module because `Runtime.sync` returns it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec import Struct

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, StoreBroken, UsageError
from ninelives.core.model.run import NewRun, RunQuery, State
from ninelives.core.model.run import RunRow as Row
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.sealing import cipher_of
from ninelives.engine.governor import Governing, Governor
from ninelives.engine.hooks import Observer, hooks_for
from ninelives.engine.model_calls import Asking, AsksModels
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import AGENTS, Agent, get_agent, needs_governor
from ninelives.engine.worker import event_loop
from ninelives.engine.worker.event_loop import StoreCaller
from ninelives.engine.worker.executor import Executor
from ninelives.engine.worker.session import IdleSession, OwnSession
from ninelives.engine.worker.worker import Away, Create, Worker
from ninelives.logs.run_log import RunLog
from ninelives.runtime.blocking import BlockingItem, BlockingRun, LoopThread, Twin, waits, waits_for
from ninelives.runtime.halt_calls import HaltCalls
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.run_creation import BatchedCreation, new_run
from ninelives.runtime.run_here import RunHere
from ninelives.runtime.wakeups import Listener
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import DEFAULT_URL, encrypted, open_store
from ninelives.stores.url import is_local

if TYPE_CHECKING:
    from ninelives.governance.governor import StoreGovernor
    from ninelives.governance.install import Policies
    from ninelives.stores.encrypted.keys import Encrypt

T = TypeVar("T")

LEASE_SECONDS = 10.0
FAMILY_CONCURRENCY = 100
"""How many runs, a run and its children, `Runtime.run` executes at once."""


class ProcessOptions(Struct, frozen=True, kw_only=True):
    """What our own processes decide about their runtime: scripts, `ninelives run`, workers, chaos, tests.

    `fatal` is called when the store is broken; without it, the runtime seals itself. `is_dedicated`: nothing
    else uses the event loop. `away` is called when the store accepts no new session. A supervisor gives its
    workers `keeper` (its own session), `session` (the name of their first one) and `identity` (of the store).
    `lives` overrides those of all agents. `is_logged`: what happens to runs is logged.
    `governor` judges and holds calls from the start.
    """

    fatal: Callable[[BaseException], None] | None = None
    is_dedicated: bool = False
    away: Away | None = None
    clock: Clock | None = None
    keeper: str = ""
    session: str = ""
    identity: str = ""
    lives: int | None = None
    observers: tuple[Observer, ...] = ()
    is_logged: bool = True
    governor: Governor | None = None


class Runtime(HaltCalls):
    """Starts and executes runs that are kept in a store. Use it as `async with nl.Runtime(...) as rt`."""

    store: Store

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        policy: Policies | None = None,
        lease_seconds: float = LEASE_SECONDS,
        encrypt: Encrypt | bool | None = None,
        process: ProcessOptions = ProcessOptions(),  # noqa: B008 (frozen)
    ) -> None:
        """`policy` judges calls: a path, a function, or several; by default the file in $NINELIVES_POLICY."""
        self._given, self._lease_seconds, self._process = store, lease_seconds, process
        self._policy: Policies = os.environ.get("NINELIVES_POLICY") or () if policy is None else policy
        self._encrypt = encrypt
        self._clock = process.clock or SystemClock()
        self._session = process.session
        self._failure: BaseException | None = None
        self._workers: set[Worker] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._creation = BatchedCreation(self)
        self.governing = Governing(process.governor)
        """What governs the runs of this runtime."""
        self._governor: StoreGovernor | None = None
        self._asking = Asking(self._make_asks)
        self._started: WeakValueDictionary[str, Run] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        self._loop, process = asyncio.get_running_loop(), self._process
        url = self._given if self._given is not None else os.environ.get("NINELIVES_STORE", DEFAULT_URL)
        if isinstance(url, str):
            self.store = await asyncio.to_thread(
                open_store, url, known=process.identity, encrypt=self._encrypt
            )
        else:
            self.store = url if self._encrypt is None else encrypted(cast("Any", url), self._encrypt)
        if cipher_of(self.store) is not None:
            await asyncio.to_thread(cast("Any", self.store).require_key)
        await self._govern()
        self._committer = Committer(self.store, self._clock, fatal=process.fatal or self._fail)
        self._commits = LoopCommits(self._committer, self._loop, is_dedicated=process.is_dedicated)
        hooks = hooks_for((RunLog(), *process.observers) if process.is_logged else process.observers)
        is_inline = process.is_dedicated and is_local(self.store.url)
        self._calls = StoreCaller(self.store, is_inline=is_inline)
        self._executor = Executor(
            self.store,
            self._commits,
            self._loop,
            self._clock,
            hooks=hooks,
            calls=self._calls,
            lives=process.lives,
            governing=self.governing,
            asking=self._asking,
        )
        self._executor.completed = self._completed
        self._spare = IdleSession(self._loop)
        self._listener = Listener(self._loop, self.store.wait_for_work, woken=self.read_news)
        self._readers = Listener(self._loop, self.store.wait_for_output)
        # Last: if anything above fails, the loop is left as it was.
        event_loop.enter(self._loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stop_working()
        finally:
            await self._close()

    async def _govern(self) -> None:
        """Load the policy and the approvers, if there are any; else a halt installs a governor."""
        self.governing.install = self._install_governor
        is_governed = self._policy != () or needs_governor() or "NINELIVES_APPROVERS" in os.environ
        if is_governed and self.governing.governor is None:
            try:
                await self._install_governor()
            except BaseException:
                if isinstance(self._given, str) or self._given is None:
                    self.store.close()
                raise

    async def _install_governor(self) -> None:
        # Lazily: a process that nothing governs does not pay for the import.
        from ninelives.governance.install import govern

        self._governor = await govern(self.governing, cast(Any, self.store), self._policy)

    def _make_asks(self) -> AsksModels:
        # Lazily: a process whose steps declare nothing of it does not pay for the import.
        from ninelives.models.install import make_asks

        return make_asks(self.store, self._clock)

    async def _stop_working(self) -> None:
        """Cancel the work in progress. Workers seal their runs first, so that run code cannot block us."""
        working = list(self._working)
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)

    async def _close(self) -> None:
        await self._creation.wait_until_idle()
        await self._spare.close()
        self._listener.close()
        self._readers.close()
        event_loop.leave(self._loop)
        # In a thread: it joins the committer's thread, which may wait for the store.
        await asyncio.to_thread(self._committer.close)
        if self._governor is not None:
            await asyncio.to_thread(self._governor.close)
        await asyncio.to_thread(self._asking.close)
        if isinstance(self._given, str) or self._given is None:
            await asyncio.to_thread(self.store.close)
            # After the store is closed, which ends the wait in which the thread stands.
            await asyncio.to_thread(self._listener.join)
            await asyncio.to_thread(self._readers.join)

    async def start(
        self,
        agent: Any,
        *args: Any,
        id: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> Run:
        """Create a run durably and return its handle; a worker executes it. A known id returns that run.

        Raises UnknownAgent, NotSerializable, BadName; IdConflict when the id exists with other arguments.
        """
        new = await new_run(self, agent, args, kwargs, id=id, delay=delay, priority=priority, labels=labels)
        await self._creation.create(new)
        self._started[new.id] = handle = Run(self, new.id)
        return handle

    async def run(
        self, agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Start or resume a run, work on it and its children in this process, and return its result.

        Nothing is durable before this process has a session. Raises as `Run.result` does.
        """
        new = await new_run(self, agent, args, kwargs, id=id)
        here = RunHere(self, new)
        try:
            try:
                await self._work_on(here)
            except LeaseLost:
                if here.is_created:
                    raise
                # Another process ended the idle session that we reused. The next attempt begins a new one.
                await self._work_on(here)
        except BaseException:
            here.abandon()
            raise
        finally:
            self._executor.forget(new.id)
        return await here.result()

    async def _work_on(self, here: RunHere) -> None:
        await self._finish(
            self._work(FAMILY_CONCURRENCY, until=lambda _: here.is_over, only=here.handle, create=here.create)
        )

    async def work(
        self,
        concurrency: int = 100,
        *,
        limits: Mapping[str, int] | None = None,
        until_idle: bool = False,
    ) -> None:
        """Work on runs of all agents declared here; with `until_idle`, return when no run can make progress.

        Executes at most `concurrency` runs at once, and at most `limits[agent]` of an agent.
        Raises UsageError; UnknownAgent; LeaseLost when another worker may own this worker's runs by now.
        """
        if type(concurrency) is not int or concurrency < 1:
            raise UsageError(f"concurrency={concurrency!r}", remedy="Give a number of runs, at least 1")
        for name, most in (limits or {}).items():
            get_agent(name)
            if type(most) is not int or most < 0:
                raise UsageError(f"limits has {name!r}: {most!r}", remedy="Give a number of runs")
        work = self._work(concurrency, until=lambda worker: until_idle and worker.is_idle, limits=limits)
        await self._finish(work)

    async def get(self, id: str) -> Run:
        """Return a handle to a run. Raises UnknownRun."""
        handle = Run(self, id)
        await handle.status()
        return handle

    async def list(
        self,
        status: State | str | None = None,
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        after: int | None = None,
    ) -> list[Row]:
        """Return rows of runs, newest first; for the next page, `after` is the number of the last row."""
        query = RunQuery(
            states=(State(status),) if status is not None else (),
            agent=agent,
            labels=dict(labels or {}),
            limit=limit,
            after=after,
        )
        return await self.call(lambda store: store.list_runs(query))

    async def inbox(
        self, run: str | None = None, *, answered: bool = False, limit: int = 100
    ) -> Sequence[InboxItem]:
        """Return the inbox items that wait for a person, oldest first; with `answered`, also settled ones."""
        found = await self.call(lambda store: store.list_inbox(run=run, answered=answered, limit=limit))
        return [InboxItem(self, item) for item in found]

    def sync(self) -> BlockingRuntime:
        """Return this runtime for plain code; its event loop runs in a thread."""
        return BlockingRuntime(self)

    # Inside -------------------------------------------------------------------------------------

    async def call(self, work: Callable[..., T], *values: Any) -> T:
        """Call `work(store, *values)` in a thread. Raises what it raises; StoreBroken once we are sealed."""
        self._require_sound()
        return await asyncio.to_thread(work, self.store, *values)

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise StoreBroken(f"this runtime has sealed itself: {self._failure}", remedy="End the process")

    async def create_here(self, new: NewRun, handle: Run, session: str) -> Row:
        """Create a run that belongs to the session, or return the run that has its id.

        Raises UsageError; LeaseLost.
        """
        self._require_sound()
        (row,) = await self._calls.call(lambda store: store.create_runs([new], session=session))
        if isinstance(row, UsageError):
            raise row
        self._started[new.id] = handle
        # No other worker has begun it: its journal is known without a read (`Executor._newborn` compares).
        if row.session == session or row.state is State.PENDING:
            handle.expect()
            self._executor.born[new.id] = new
        return row

    def wake(self) -> None:
        """Make the workers check for work now."""
        for worker in self._workers:
            worker.wake()

    def read_news(self) -> None:
        """Read the news of the runs that are executed here, and check for work."""
        self._executor.news.on_wakeup()
        self.wake()

    def notify(self) -> None:
        """React to a change of the store: read news, check for work and for what `until` waits for."""
        self.read_news()
        self._listener.check_all()

    @property
    def executions(self) -> Mapping[str, Execution]:
        """The runs that are executed here now, by id."""
        return self._executor.executions

    @property
    def is_committing(self) -> bool:
        """Whether something written has no verdict yet."""
        return self._commits.is_waiting

    def is_worker(self, task: object) -> bool:
        """Return whether a task is a worker's own, which claims runs and rests."""
        return task in self._working

    def abandon(self) -> None:
        """Stop the committer, and leave everything else as it is: the simulated process is dead."""
        self._committer.close()

    async def until(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Return the first result of `condition` that is not None; checked again at every wake-up."""
        return await self._listener.until(condition)

    async def until_output(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Do the same as `until`, checked again when a run emits output or ends."""
        return await self._readers.until(condition)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Await work in a task that `__aexit__` cancels."""
        working = asyncio.create_task(work)
        self._working.add(working)
        try:
            await working
        finally:
            self._working.discard(working)

    async def _work(
        self,
        concurrency: int,
        *,
        until: Callable[[Worker], bool],
        only: Run | None = None,
        create: Create | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        async def leave(session: OwnSession) -> None:
            # Once its only run is over, a session owns nothing and may be reused. It still owns a child that
            # was claimed here while the parent ended elsewhere; then it must end, to release the child.
            claimed = worker.claims, worker.first_claimed
            if only is not None and only.is_over and claimed == (1, only.id):
                await self._spare.keep(session)
            else:
                await session.end()

        self._require_sound()
        self._listener.start()
        # Taken in the same task that ends it: a task cancelled before it starts has not taken a session.
        own = self._own_session(list(AGENTS))
        if self._governor is not None and self._governor.has_policy and not own.has_begun:
            await asyncio.to_thread(self._governor.note_session, own.id)
        worker = Worker(
            self.store, self._executor, self._clock, own, limits=limits, leave=leave, away=self._process.away
        )
        self._workers.add(worker)
        name = only.id if only is not None else None
        try:
            await worker.work(
                concurrency,
                agents=lambda: list(AGENTS),
                until=lambda: until(worker),
                only=name,
                create=create,
            )
        finally:
            self._workers.discard(worker)

    def _own_session(self, agents: Sequence[str]) -> OwnSession:
        name, self._session = self._session, ""  # a name that the supervisor chose is for one session only
        spare = None if name else self._spare.take(agents)
        lease_ms = int(self._lease_seconds * 1000)
        return spare or OwnSession(
            self.store, self._calls, self._clock, lease_ms, name=name, keeper=self._process.keeper
        )

    def _completed(self, run: str, agent: Agent, value: bytes) -> None:
        handle = self._started.get(run)
        if handle is not None:
            handle.complete(agent.result, value)
            self._listener.check_all()

    def _fail(self, error: BaseException) -> None:
        self._failure = error


class BlockingRuntime(Twin[Runtime]):
    """A runtime for plain code; use it as `with nl.Runtime(...).sync() as rt`. See `Runtime`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.wait(self._runtime.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.wait(self._runtime.__aexit__(kind, error, trace))
        finally:
            self._loop.stop()

    def _do(self, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        return self._loop.wait(work(self._runtime))

    def _handle(self, run: Run) -> BlockingRun:
        return BlockingRun(self._loop, run)

    def _items(self, found: Sequence[InboxItem]) -> Sequence[BlockingItem]:
        return [BlockingItem(self._loop, item) for item in found]

    start = waits_for(Runtime.start, _handle)
    run = waits(Runtime.run)
    work = waits(Runtime.work)
    get = waits_for(Runtime.get, _handle)
    list = waits(Runtime.list)
    inbox = waits_for(Runtime.inbox, _items)
    halt = waits(Runtime.halt)
    unhalt = waits(Runtime.unhalt)
    halts = waits(Runtime.halts)
