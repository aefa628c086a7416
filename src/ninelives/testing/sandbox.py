"""A sandbox: runs, workers, time and people of a test, in this process and under the test's control.

Runs make progress only inside `run`, `result`, `work` and `skip`, on the test's thread. Time stands still,
and is skipped when a run waits for nothing else. The store is in memory.
With a `kill`, the sandbox's worker is killed at a store call, and a new one takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
"""After this many questions to the test's person we assume an endless loop."""


class Stuck(AssertionError):
    """A run waits for something that nothing in the test will provide."""


class Sandbox:
    """Runs agents in a test. Use `with Sandbox() as sandbox`, or the pytest fixture."""

    def __init__(self, *, start: datetime = START, kill: Kill | None = None, deaths: int = 1) -> None:
        self.clock = SkippingClock(start)
        self.store = _NotifyingStore(self.clock, self._on_change)
        self.person: Callable[[SandboxItem], object] | None = None
        """Called with each inbox item, to answer it, whenever nothing else can make progress."""
        self.kills: list[str] = []
        """The kills so far."""
        self.calls: Sequence[str] = ()
        """The writing store calls of the first runtime, in order."""
        self._kill, self._deaths = kill, deaths
        self._life: RuntimeLife | None = None
        self._started = self._ids = self._questions = 0
        self._left: set[str] = set()
        self._known = dict(AGENTS), dict(STEPS), dict(RIVALS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it, and undeclare the agents and steps that were declared since it was made."""
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
        """Create a run without working on it; see `Runtime.start`. Default ids count up: `support-1`."""
        self._started += id is None
        name = id if id is not None else f"{get_agent(agent).name}-{self._started}"
        options: dict[str, Any] = {"delay": delay, "priority": priority, "labels": labels}
        self.do(lambda runtime: runtime.start(agent, *args, id=name, kwargs=kwargs, **options))
        return SandboxRun(self, name)

    def run(
        self, agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Start or resume a run, work on it, skip its sleeps, and return its result.

        Raises RunFailed, RunCancelled, RunEscalated; Stuck when it waits for what the test will not provide.
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
        """Return the open inbox items, oldest first."""
        found = self.do(lambda runtime: runtime.inbox(run, limit=_ALL))
        return [SandboxItem(self, item) for item in found]

    # Work and time ------------------------------------------------------------------------------

    def work(self) -> None:
        """Work until no run can make progress without time passing, a signal, or a person.

        Sleeps inside step bodies are skipped.
        """
        while True:
            self.do(lambda runtime: runtime.work(until_idle=True))
            if not self._ask_person():
                return

    def skip(self, time: float | timedelta) -> None:
        """Let time pass, in seconds or as a timedelta; runs that become due are worked on at their time."""
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
        """Work, and skip time, until a run has ended or is escalated. Raises Stuck."""
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
        """Return the next time at which a waiting run becomes due; None when there is none."""
        now_ms = self.clock.now_ms()
        dues = (run.due_ms for run in self.list() if not run.paused and not run.state.is_final)
        return min((due_ms for due_ms in dues if due_ms is not None and due_ms > now_ms), default=None)

    def do(self, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the current runtime; if that dies meanwhile, run it again on a new one.

        So `work` must be idempotent, as all operations of a runtime are.
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

    def next_id(self) -> str:
        """Return a new id: a signal that is sent again after a death counts once, and so does a fork."""
        self._ids += 1
        return f"sandbox-{self._ids}"

    # Private ------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        if self._life is not None:
            self._life.wake()

    def _count(self, life: RuntimeLife) -> None:
        if not self.kills:
            self.calls = tuple(life.store.calls)

    def _ask_person(self) -> bool:
        """Pass open inbox items to the test's person; return whether one was answered."""
        if self.person is None:
            return False
        waiting = [item for item in self.inbox() if item.id not in self._left]
        self._questions += len(waiting)
        if self._questions > MOST_QUESTIONS:
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
            return (
                f"run {row.id!r} is due, but this sandbox cannot claim it: check its pin, its queue, and "
                f"that agent {row.agent!r} is declared"
            )
        return (
            f"run {row.id!r} waits {row.waits}, and nothing in this test will provide that. "
            "Start it with sandbox.start(...), call sandbox.work(), send what it waits for, call result()"
        )

    def _unknown(self, run: str) -> RunRow:
        raise UsageError("there is no such run", run=run, remedy="Check the id")


class _NotifyingStore(MemoryStore):
    """A memory store that reports each change at once, on the thread that wrote it."""

    def __init__(self, clock: SkippingClock, on_change: Callable[[], None]) -> None:
        super().__init__(clock)
        self._on_change = on_change

    def _wake(self) -> None:
        super()._wake()
        self._on_change()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "a sandbox runs its own event loop, and cannot be used inside another one",
        remedy="Write the test as a plain def; the agents in it may be async",
    )
