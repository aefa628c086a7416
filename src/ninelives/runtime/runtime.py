"""The façade: a runtime is a store, a committer and a worker in this process, and handles to runs."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakValueDictionary

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, StoreBroken, UsageError
from ninelives.core.ids import check_id
from ninelives.core.model.run import INLINE_BYTES, NewRun, RunQuery, State
from ninelives.core.model.run import RunRow as Row
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.machine import machine
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import AGENTS, Agent, get_agent
from ninelives.engine.worker import event_loop
from ninelives.engine.worker.executor import Executor
from ninelives.engine.worker.session import IdleSession, OwnSession
from ninelives.engine.worker.worker import Away, Bear, Worker
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.run_creation import Starts
from ninelives.runtime.run_here import Birth
from ninelives.runtime.wakeups import Listener
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.open import DEFAULT_URL, open_store

if TYPE_CHECKING:
    from ninelives.runtime.blocking import BlockingRuntime

T = TypeVar("T")
LEASE_SECONDS = 10.0
FAMILY_CONCURRENCY = 100
"""How many of a run and its children `Runtime.run` works on at once."""


class Runtime:
    """A store to keep runs in, and the means to start and execute them. Use it as `async with`."""

    def __init__(self, store: str | Store | None = None, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._given, self._lease_seconds = store, lease_seconds
        self._fatal: Callable[[BaseException], None] = self._fail
        self._is_dedicated = False
        self._away: Away | None = None
        self._clock: Clock = SystemClock()
        self._keeper = self._session = self._identity = ""
        self._failure: BaseException | None = None
        self._workers: set[Worker] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._starts = Starts(self.call)
        self._started: WeakValueDictionary[str, Run] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        url = self._given if self._given is not None else os.environ.get("NINELIVES_STORE", DEFAULT_URL)
        self.store: Store = open_store(url, known=self._identity) if isinstance(url, str) else url
        self._committer = Committer(self.store, self._clock, fatal=self._fatal)
        commits = LoopCommits(self._committer, self._loop, is_dedicated=self._is_dedicated)
        self._executor = Executor(self.store, commits, self._loop, self._clock)
        self._executor.completed = self._completed
        self._spare = IdleSession(self._loop)
        self._listener = Listener(self._loop, self.store.wait_for_work, woken=self._wake)
        self._readers = Listener(self._loop, self.store.wait_for_output)
        event_loop.enter(self._loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stop_working()
        finally:
            await self._close()

    async def _stop_working(self) -> None:
        """End the work that nobody has ended: sealed first, so that no run's code keeps us here."""
        working = list(self._working)
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)

    async def _close(self) -> None:
        await self._starts.over()
        await self._spare.close()
        self._listener.close()
        self._readers.close()
        event_loop.leave(self._loop)
        await asyncio.to_thread(self._committer.close)
        if isinstance(self._given, str) or self._given is None:
            await asyncio.to_thread(self.store.close)
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
        """Make a run durable; a worker carries it out. A known id gives that run.

        Raises UnknownAgent, NotSerializable, BadName; IdConflict when the id exists with other arguments.
        """
        new = await self._new(agent, args, kwargs, id=id, delay=delay, priority=priority, labels=labels)
        await self._starts.create(new)
        self._started[new.id] = handle = Run(self, new.id)
        return handle

    async def _new(
        self,
        agent: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        *,
        id: str | None,
        delay: float | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> NewRun:
        declared = get_agent(agent)
        name = check_id(id, "run id") if id is not None else f"{declared.name[:200]}-{secrets.token_hex(6)}"
        named = dict(kwargs or {})
        body, made = agent_arguments.encode(declared, args, named)
        contents = list(made.values())
        if len(body) > INLINE_BYTES:
            contents, body = [body, *contents], b""
        blobs = tuple(await self.call(lambda store: store.put_blobs(contents))) if contents else ()
        return NewRun(
            id=name,
            agent=declared.name,
            fingerprint=declared.fingerprint(args, named).digest,
            body=body,
            blobs=blobs,
            queue=declared.queue,
            pin=machine() if declared.is_pinned else None,
            priority=priority,
            labels=dict(labels or {}),
            due_ms=self.store.now_ms() + int(delay * 1000) if delay else 0,
        )

    async def run(
        self, agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Start or resume a run, work on it and its children in this process, and return its result.

        Nothing is durable before this process has a session. Raises as `Run.result` does.
        """
        new = await self._new(agent, args, kwargs, id=id)
        birth = Birth(self, new)
        try:
            try:
                await self._carry_out(birth)
            except LeaseLost:
                if birth.has_happened:
                    raise
                await self._carry_out(birth)  # another had ended the session that was kept: now as a new one
        except BaseException:
            birth.abandon()
            raise
        finally:
            self._executor.forget(new.id)
        return await birth.result()

    async def _carry_out(self, birth: Birth) -> None:
        only, bear = birth.handle, birth.bear
        await self._finish(
            self._work(FAMILY_CONCURRENCY, until=lambda _: birth.is_over, only=only, bear=bear)
        )

    async def work(
        self,
        concurrency: int = 100,
        *,
        limits: Mapping[str, int] | None = None,
        until_idle: bool = False,
    ) -> None:
        """Be a worker for all agents declared here; with `until_idle`, until nothing can be worked on now.

        At most `concurrency` runs at once, and of an agent at most as many as `limits` says.
        Raises UsageError; UnknownAgent; LeaseLost when this worker's runs may be another's by now.
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
        """Return the rows of runs, newest first; `after` is the number of the last one seen."""
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
        """Return what waits for a person, oldest first; with `answered`, also what has been settled."""
        found = await self.call(lambda store: store.list_inbox(run=run, answered=answered, limit=limit))
        return [InboxItem(self, item) for item in found]

    def sync(self) -> BlockingRuntime:
        """Return this runtime for plain code, with an event loop of its own."""
        from ninelives.runtime.blocking import BlockingRuntime

        return BlockingRuntime(self)

    # Inside -------------------------------------------------------------------------------------

    async def call(self, work: Callable[..., T], *values: Any) -> T:
        """Call the store in a thread. Raises what it raises, or what has sealed this runtime."""
        self._require_sound()
        return await asyncio.to_thread(work, self.store, *values)

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise StoreBroken(f"this runtime has sealed itself: {self._failure}", remedy="End the process")

    def bear(self, new: NewRun, handle: Run, session: str) -> Row:
        """Create a run as a session's, or return the one that has its id. Raises UsageError; LeaseLost."""
        self._require_sound()
        (row,) = self.store.create_runs([new], session=session)
        if isinstance(row, UsageError):
            raise row
        self._started[new.id] = handle
        if row.session == session or row.state is State.PENDING:
            handle.expect()
            self._executor.born[new.id] = new
        return row

    def wake(self) -> None:
        """Let the workers look again."""
        for worker in self._workers:
            worker.wake()

    async def until(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a condition gives something; asked again whenever something may have happened."""
        return await self._listener.until(condition)

    async def until_output(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a condition gives something; asked again when something was emitted or a run ended."""
        return await self._readers.until(condition)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Have work done in a task of its own, which ends with the runtime."""
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
        bear: Bear | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        async def leave(session: OwnSession) -> None:
            # With its only run over, a session owns nothing that its end would have to release. A child that
            # was claimed here, while its parent ended elsewhere, it owns still.
            claimed = worker.claims, worker.first_claimed
            if only is not None and only.is_over and claimed == (1, only.id):
                await self._spare.keep(session)
            else:
                await session.end()

        self._require_sound()
        self._listener.start()
        # In this task, which also ends it: who is cancelled before it begins has taken none.
        own = self._own_session(list(AGENTS))
        worker = Worker(
            self.store, self._executor, self._clock, own, limits=limits, leave=leave, away=self._away
        )
        self._workers.add(worker)
        name = only.id if only is not None else None
        try:
            await worker.work(
                concurrency,
                agents=lambda: list(AGENTS),
                until=lambda: until(worker),
                only=name,
                bear=bear,
            )
        finally:
            self._workers.discard(worker)

    def _own_session(self, agents: Sequence[str]) -> OwnSession:
        name, self._session = self._session, ""  # the name is for one
        spare = None if name else self._spare.take(agents)
        lease_ms = int(self._lease_seconds * 1000)
        return spare or OwnSession(self.store, self._clock, lease_ms, name=name, keeper=self._keeper)

    def _completed(self, run: str, agent: Agent, value: bytes) -> None:
        handle = self._started.get(run)
        if handle is not None:
            handle.complete(agent.result, value)
            self._listener.look_again()

    def _wake(self) -> None:
        self._executor.newsroom.hear()
        self.wake()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
