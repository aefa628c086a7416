"""Lives of a runtime in this process, each of which may die at any moment; only the store survives.

Dead means: the event loop is abandoned where it is, no call reaches the store any more, and no body of that
life can say another word to the world. Then what is left is cleared away, so that thousands of lives fit
into one process, and the next one starts from what was durable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Literal, cast

from msgspec import Struct

import ninelives as nl
from ninelives.core.errors import StoreBroken
from ninelives.core.ids import parse_step_id, positional_key
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.run import Kind
from ninelives.core.model.session import Cause
from ninelives.engine.worker import event_loop
from ninelives.runtime import ProcessOptions
from ninelives.store import Store
from tests.replay.world import Died, World

OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN})
HUNG = "hung"
HUNG_SECONDS = 4.0
_CLEAR_SECONDS = 20.0
_OURS = ("run ", "ninelives-")
_STILL_SECONDS = 0.05  # how long a thread stands still in a dead store; the loop's own may wait for it


class Kill(Struct, frozen=True):
    """When to die: before or after the n-th call of the store, or in the n-th round of the event loop."""

    at: Literal["before", "after", "round"]
    count: int


class MortalStore:
    """A store as one life sees it: it counts calls, tells the world what is durable, and dies on time."""

    def __init__(self, under: Store, world: World, kill: Kill | None) -> None:
        self._under, self._world, self._kill = under, world, kill
        self._counting = threading.Lock()
        self.is_dead = threading.Event()
        self._cleared = threading.Event()
        self.calls: list[str] = []
        self.where = ""
        self.on_death: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._under, name)
        if not callable(found) or name in ("now_ms", "close"):
            return found
        if name == "wait_for_work":
            return self._wait

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counting:
                self.calls.append(name)
                number = len(self.calls)
            if self._kill == Kill("before", number):
                self.die(f"before {name}, call {number}")
            self._pass()
            answer = self._commit(*args) if name == "commit" else found(*args, **kwargs)
            if self._kill == Kill("after", number):
                self.die(f"after {name}, call {number}")
            self._pass()
            return answer

        return call

    def die(self, where: str) -> None:
        """Die here and now."""
        with self._counting:
            if not self.is_dead.is_set():
                self.where = where
                self._world.is_over.set()
                self.is_dead.set()
                self.on_death()

    def clear(self) -> None:
        """Let go of the threads that stand still in the dead store."""
        self._cleared.set()
        self._under.close()

    def _pass(self) -> None:
        if self.is_dead.is_set():
            if threading.current_thread() is not threading.main_thread():
                self._cleared.wait(_STILL_SECONDS)
            raise Died

    def _wait(self, timeout_seconds: float) -> bool:
        if self.is_dead.is_set():
            raise StoreBroken("dead")
        return self._under.wait_for_work(timeout_seconds)

    def _commit(self, batch: list[Commit]) -> list[Verdict]:
        turns = {commit.run: row.turn for commit in batch if (row := self._under.read_run(commit.run))}
        verdicts = self._under.commit(batch)
        for commit, verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is Outcome.COMMITTED:
                for record in commit.records:
                    if record.kind in OUTCOMES:
                        key = positional_key(commit.run, turns[commit.run], *parse_step_id(record.step))
                        self._world.tell("durable", turn=turns[commit.run], key=key, value=record.kind.value)
        return verdicts


class MortalLoop(asyncio.SelectorEventLoop):
    """An event loop that can end in the middle of a round."""

    def __init__(self, kill: Kill | None, die: Callable[[str], None], place: Callable[[int], int]) -> None:
        super().__init__()
        self._kill_round = kill.count if kill is not None and kill.at == "round" else None
        self._die, self._place = die, place
        self.rounds = 0
        self.complaints: list[str] = []
        self.set_exception_handler(lambda _, what: self.complaints.append(str(what)))

    def _run_once(self) -> None:
        self.rounds += 1
        if self.rounds == self._kill_round:
            ready = cast("Any", self)._ready
            ready.insert(self._place(len(ready) + 1), asyncio.Handle(self._stop_here, (), self, Context()))
        cast("Any", super())._run_once()

    def _stop_here(self) -> None:
        self._die(f"in round {self.rounds}")
        raise Died


class End(Struct, frozen=True):
    """How a life ended: None for `where` when nothing was left to do."""

    where: str | None
    calls: list[str]
    rounds: int
    complaints: list[str]


def live(
    under: Store,
    world: World,
    agent: str,
    args: tuple[Any, ...],
    run: str,
    kill: Kill | None,
    *,
    is_dedicated: bool = False,
) -> End:
    """Start or resume a run and work until nothing is left, or die on the way.

    `is_dedicated`: as `nl.run` does, where the process has nothing else to do.
    """
    world.next_life()
    others = set(threading.enumerate())
    store = MortalStore(under, world, kill)
    loop = MortalLoop(kill, store.die, world.rng.randrange)

    def on_death() -> None:
        loop.call_soon_threadsafe(_end_here)

    store.on_death = on_death
    runtime = nl.Runtime(cast("Any", store), process=ProcessOptions(is_dedicated=is_dedicated))
    entered = False

    async def main() -> None:
        nonlocal entered
        await runtime.__aenter__()
        entered = True
        await runtime.start(agent, *args, id=run)
        await runtime.work(until_idle=True)

    asyncio.set_event_loop(loop)
    loop.call_later(HUNG_SECONDS, store.die, HUNG)
    try:
        with suppress(Died):
            loop.run_until_complete(main())
        where = store.where if store.is_dead.is_set() else None
        complaints = list(loop.complaints) if where is None else []
        store.die("it was over")
    finally:
        if entered:
            event_loop.leave(loop)
        _clear(loop, store, runtime, others)
        asyncio.set_event_loop(None)
    sessions = [session.id for session in under.list_sessions()]
    under.end_sessions(sessions, Cause.DIED)
    return End(where, store.calls, loop.rounds, complaints)


def _end_here() -> None:
    raise Died


def _clear(loop: MortalLoop, store: MortalStore, runtime: nl.Runtime, others: set[threading.Thread]) -> None:
    """Clear away what a dead life left: its tasks, its threads (not those of others), its loop."""
    loop._kill_round = None
    store.clear()
    committer = getattr(runtime, "_committer", None)
    if committer is not None:
        committer.close()
    deadline = loop.time() + _CLEAR_SECONDS
    while True:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        with suppress(Died, RuntimeError):  # it may be stopped once more by what dies late
            loop.run_until_complete(_turn_over(left))
        threads = [one for one in {*threading.enumerate()} - others if one.name.startswith(_OURS)]
        if not asyncio.all_tasks(loop) and not threads:
            break
        store.clear()
        if loop.time() > deadline:
            raise AssertionError(f"a dead life does not end: {left} {threads}")
    executor = cast("Any", loop)._default_executor
    if executor is not None:
        executor.shutdown(wait=True)  # nothing is left in it that could wait for the loop
    loop.close()


async def _turn_over(tasks: set[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=0.01)
    else:
        await asyncio.sleep(0.0002)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()
