"""A sandbox: runs, workers, time and people of a test, all in this process, all under the test's control.

Nothing moves but when the test lets it: runs are worked on inside `run`, `result`, `work` and `skip`, on the
test's own thread; time stands still, and is skipped where a run waits for nothing else. The store is memory.
A sandbox may be told to die: then its worker is killed at a call of the store, and a new one takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from ninelives.core.errors import UsageError
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.engine.spec.registry import AGENTS, RIVALS, STEPS, get_agent
from ninelives.runtime.runtime import Runtime
from ninelives.stores.memory import MemoryStore
from ninelives.testing.clock import START, SkippingClock
from ninelives.testing.dying_store import Died, Kill
from ninelives.testing.handles import SandboxItem, SandboxRun
from ninelives.testing.runtime_life import RuntimeLife

T = TypeVar("T")
_ALL = 100_000
MOST_QUESTIONS = 10_000
"""How often the person of a test is asked before it is plain that there will be no end of it."""


class Stuck(AssertionError):
    """A run waits for something that nothing in the test will bring."""


class Sandbox:
    """Where a test runs its agents. Use it as `with Sandbox() as sandbox`, or by the pytest fixture."""

    def __init__(self, *, start: datetime = START, kill: Kill | None = None, deaths: int = 1) -> None:
        self.clock = SkippingClock(start)
        self.store = _Store(self.clock, self._heard)
        self.person: Callable[[SandboxItem], object] | None = None
        """Asked to answer what waits for a person, whenever nothing else can go on."""
        self.kills: list[str] = []
        """Where this sandbox has been killed so far."""
        self.calls: Sequence[str] = ()
        """The calls of the store that write, as they were made in the first life."""
        self._kill, self._deaths = kill, deaths
        self._life: RuntimeLife | None = None
        self._started = self._signals = self._asked = 0
        self._left: set[str] = set()
        self._known = dict(AGENTS), dict(STEPS), dict(RIVALS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; agents and steps that were declared meanwhile are forgotten."""
        life, self._life = self._life, None
        if life is not None:
            self._count(life)
            life.close()
        self.store.close()
        AGENTS.clear()
        AGENTS.update(self._known[0])
        STEPS.clear()
        STEPS.update(self._known[1])
        RIVALS.clear()
        RIVALS.update(self._known[2])

    # Runs ---------------------------------------------------------------------------------------

    def start(
        self,
        agent: Any,
        *args: Any,
        id: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        delay: float | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> SandboxRun:
        """Make a run durable, and leave it there; see `Runtime.start`. Ids count up: `support-1`."""
        self._started += id is None
        name = id if id is not None else f"{get_agent(agent).name}-{self._started}"
        options: dict[str, Any] = {"delay": delay, "priority": priority, "labels": labels}
        self.do(lambda runtime: runtime.start(agent, *args, id=name, kwargs=kwargs, **options))
        return SandboxRun(self, name)

    def run(
        self, agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Start or resume a run, work on it, skip what it sleeps, and return its result.

        Raises RunFailed, RunCancelled, RunEscalated; Stuck when it waits for what nothing will bring.
        """
        return self.start(agent, *args, id=id, kwargs=kwargs).result()

    def get(self, id: str) -> SandboxRun:
        """Return a handle to a run. Raises UnknownRun."""
        handle = SandboxRun(self, id)
        handle.status()
        return handle

    def list(self) -> Sequence[RunRow]:
        """Return the rows of all runs, oldest first."""
        return self.store.list_runs(RunQuery(limit=_ALL))[::-1]

    def inbox(self, run: str | None = None) -> Sequence[SandboxItem]:
        """Return what waits for a person, oldest first."""
        found = self.do(lambda runtime: runtime.inbox(run, limit=_ALL))
        return [SandboxItem(self, item) for item in found]

    # Work and time ------------------------------------------------------------------------------

    def work(self) -> None:
        """Work until nothing can go on without time passing, a signal, or a person.

        Bodies that wait are waited for: their time is skipped.
        """
        while True:
            self.do(lambda runtime: runtime.work(until_idle=True))
            if not self._ask_person():
                return

    def skip(self, time: float | timedelta) -> None:
        """Let time pass, in seconds or as a timedelta; what falls due meanwhile is worked on at its time."""
        until = SkippingClock(self.clock.now())
        until.skip(time)
        until_ms = until.now_ms()
        self.work()
        while (due_ms := self.next_due_ms()) is not None and due_ms <= until_ms:
            self.clock.skip_to_ms(due_ms)
            self.work()
        self.clock.skip_to_ms(until_ms)
        self.work()

    def work_for(self, run: str) -> RunRow:
        """Work, and skip time, until a run has ended or only a person can go on. Raises Stuck."""
        while True:
            self.work()
            row = self.store.read_run(run)
            if row is None or row.state.is_final or row.state is State.ESCALATED:
                return row if row is not None else self._unknown(run)
            due_ms = self.next_due_ms()
            if due_ms is None:
                raise Stuck(self._why(row))
            self.clock.skip_to_ms(due_ms)

    def next_due_ms(self) -> int | None:
        """Return when the next run falls due that waits for its time; None when none does."""
        now_ms = self.clock.now_ms()
        dues = (run.due_ms for run in self.list() if not run.paused and not run.state.is_final)
        return min((due_ms for due_ms in dues if due_ms is not None and due_ms > now_ms), default=None)

    def do(self, work: Callable[[Runtime], Awaitable[T]]) -> T:
        """Have the runtime of the present life do something; a life that dies of it leaves it to the next.

        What is done must bear to be done again, as everything that a runtime offers does.
        """
        _refuse_running_loop()
        while True:
            life = self._life
            if life is None:
                kill = self._kill if len(self.kills) < self._deaths else None
                life = self._life = RuntimeLife(self.store, self.clock, kill)
            try:
                return life.do(work)
            except Died:
                self._life = None
                self._count(life)
                self.kills.append(life.store.where)
                life.bury()

    def next_signal(self) -> str:
        """Return an id for a signal, so that it may be sent again after a death."""
        self._signals += 1
        return f"sandbox-{self._signals}"

    # Inside -------------------------------------------------------------------------------------

    def _heard(self) -> None:
        if self._life is not None:
            self._life.wake()

    def _count(self, life: RuntimeLife) -> None:
        if not self.kills:
            self.calls = tuple(life.store.calls)

    def _ask_person(self) -> bool:
        """Put what waits before the test's person; tell whether something was answered."""
        if self.person is None:
            return False
        waiting = [item for item in self.inbox() if item.id not in self._left]
        self._asked += len(waiting)
        if self._asked > MOST_QUESTIONS:
            raise Stuck(
                f"the person of this test was asked {MOST_QUESTIONS} times; last: {waiting[-1].asked.what}"
            )
        for item in waiting:
            self.person(item)
            (after,) = self.store.list_inbox(item=item.id, answered=True)
            if after.state is ItemState.OPEN:
                self._left.add(item.id)
        return any(item.id not in self._left for item in waiting)

    def _why(self, row: RunRow) -> str:
        if row.paused:
            return f"run {row.id!r} is paused. Call its resume()"
        if row.state is State.PENDING or row.due_ms is not None:
            return f"run {row.id!r} is due, and is not worked on here: pin, queue or agent {row.agent!r}"
        return (
            f"run {row.id!r} waits {row.waits}, and nothing in this test will end that. "
            "Start it by sandbox.start(...), call sandbox.work(), send what it waits for, ask for result()"
        )

    def _unknown(self, run: str) -> RunRow:
        raise UsageError("there is no such run", run=run, remedy="Check the id")


class _Store(MemoryStore):
    """A memory store that tells at once, on the thread that has written, that something has happened."""

    def __init__(self, clock: SkippingClock, heard: Callable[[], None]) -> None:
        super().__init__(clock)
        self._heard = heard

    def _wake(self) -> None:
        super()._wake()
        self._heard()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "a sandbox has an event loop of its own, and cannot be used inside another",
        remedy="Write the test as a plain def; the agents in it may be async",
    )
