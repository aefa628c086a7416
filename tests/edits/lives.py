"""Lives of a run in this process, each with the code of its day: over memory, on a clock that skips.

A life ends in peace when nothing can go on without a person, or it dies at a call of its store, or in a body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import UNSET, Struct

import ninelives as nl
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Kind, RunQuery, RunRow, State
from ninelives.engine.spec.registry import AGENTS, STEPS
from ninelives.engine.worker import event_loop
from ninelives.ops.check import CheckFinding, Rehearsal
from ninelives.store import Store
from ninelives.stores.memory import MemoryStore
from ninelives.testing.clock import START, SkippingClock
from ninelives.testing.dying_store import Died
from ninelives.testing.dying_store import Kill as StoreKill
from ninelives.testing.runtime_life import RuntimeLife
from tests.edits import ledger
from tests.edits.ledger import Event, Ledger
from tests.edits.meaning import SIGNAL

RUN = "run"
CHECK_SECONDS = 60.0
MOST_ROUNDS = 60
"""How often a run that waits gets what it waits for before it is plain that there is no end to it."""


At = Literal["before", "after", "ending", "ended", "born", "begin", "effect", "end", "rest", "never"]
TURN = "the end of a turn"
CALLS: dict[str, tuple[Literal["before", "after"], str]] = {
    "before": ("before", "commit"),
    "after": ("after", "commit"),
    "ending": ("before", TURN),
    "ended": ("after", TURN),
    "born": ("after", "create_runs"),
}
"""Before or after which call of the store to die."""


class Kill(Struct, frozen=True):
    """When to die: at the n-th commit, end of a turn, birth of runs (the first is its own), word of a body.

    Or never (and then `rest`: at a wait).
    """

    at: At
    number: int = 1

    def __str__(self) -> str:
        return f"{self.at}:{self.number}"


NEVER = Kill("never")


class Stage:
    """A store and a ledger that outlive the lives of one run, and the clock of all."""

    def __init__(self) -> None:
        self.clock = SkippingClock(START)
        self.store = _Store(self)
        self.ledger = Ledger()
        self.life: RuntimeLife | None = None
        self._heard_of = 0

    def load(self, source: str, name: str) -> None:
        """Let the code of the next life be this."""
        AGENTS.clear()
        STEPS.clear()
        exec(compile(source, name, "exec"), {"__name__": name})

    def check(self) -> CheckFinding:
        """Ask what `ninelives check` asks of the run, with the code that is loaded."""
        return rehearsed(self.store, self.row())

    def live(self, kill: Kill) -> bool:
        """Start or resume the run and go on for as long as anything can; True if it died on the way."""
        self.ledger.next_life()
        ledger.use(self.ledger)
        at_store = StoreKill(*CALLS[kill.at], kill.number) if kill.at in CALLS else None
        self.life = life = RuntimeLife(self.store, self.clock, at_store)
        self.ledger.on_event = lambda event: self._dies_at(event, kill)
        life.store.on_death = self._on_death(life.store.on_death)
        self._words = self._turns = 0
        try:
            life.do(lambda runtime: runtime.start("agent", id=RUN))
            self._work(life, kill)
            died = False
        except Died:
            died = True
        self.ledger.is_over = True
        self.life = None
        if died:
            left = asyncio.all_tasks(life._loop)
            life.bury()
            for task in left:  # never freed, and else gone through at each death to come
                asyncio.tasks._unregister_task(task)
        else:
            life.close()
        return died

    def go_on(self) -> None:
        """Say, as a person after a divergence and a change of the code, that the run may go on."""
        life = RuntimeLife(self.store, self.clock, None)
        life.do(accept_divergence)
        life.close()

    def row(self) -> RunRow:
        """Return the run as it is."""
        found = self.store.read_run(RUN)
        assert found is not None
        return found

    def items(self) -> list[Item]:
        """Return what waits for a person."""
        return list(self.store.list_inbox(limit=1000))

    def wake(self) -> None:
        """Let the present life hear that something has happened."""
        if self.life is not None:
            self.life.wake()

    def end_turn(self, side: Literal["before", "after"]) -> None:
        """Let the present life die before or after it ends a turn, if that was asked for."""
        self._turns += side == "before"
        if self.life is not None:
            self.life.store._pass(StoreKill(side, TURN, self._turns))

    def _on_death(self, leave: Callable[[], None]) -> Callable[[], None]:
        def die() -> None:
            self.ledger.is_over = True
            leave()

        return die

    def _dies_at(self, event: Event, kill: Kill) -> None:
        if event.fact != kill.at or self.life is None:
            return
        self._words += 1
        if self._words == kill.number:
            store = self.life.store
            store.where = f"{kill.at} of {event.lineage}({event.to}, {event.n})"
            store.is_dead.set()
            store.on_death()

    def _work(self, life: RuntimeLife, kill: Kill) -> None:
        for _ in range(MOST_ROUNDS):
            life.do(lambda runtime: runtime.work(until_idle=True))
            row = self.row()
            if row.state.is_final or (row.state is State.ESCALATED and not self._answer(life)):
                return
            if kill.at == "rest":
                return
            if (due_ms := self._due_ms()) is not None:
                self.clock.skip_to_ms(due_ms)
            elif not self._is_moving(row):
                self._signal(life)
        raise AssertionError(f"the run does not end: {self.row()}")

    def _is_moving(self, row: RunRow) -> bool:
        return row.state is State.PENDING

    def _due_ms(self) -> int | None:
        now_ms = self.clock.now_ms()
        dues = [run.due_ms for run in self.store.list_runs(RunQuery(limit=100)) if not run.state.is_final]
        return min((due for due in dues if due is not None and due > now_ms), default=None)

    def _signal(self, life: RuntimeLife) -> None:
        self._heard_of += 1
        name = f"signal-{self._heard_of}"
        life.do(lambda runtime: nl.Run(runtime, RUN).signal("go", SIGNAL, id=name))

    def _answer(self, life: RuntimeLife) -> bool:
        return life.do(lambda runtime: answer_doubts(runtime, self.ledger))


def rehearsed(store: Store, run: RunRow) -> CheckFinding:
    """Rehearse a run with the code that is loaded, as the child process of `ninelives check` does."""
    loop = asyncio.new_event_loop()

    async def main() -> CheckFinding:
        event_loop.enter(loop)
        return await Rehearsal(store, loop, CHECK_SECONDS).rehearse(run)

    try:
        return loop.run_until_complete(main())
    finally:
        with suppress(Exception):
            event_loop.leave(loop)
        loop.close()


async def answer_doubts(runtime: nl.Runtime, book: Ledger) -> bool:
    """Say of all that is in doubt what its provider knows of its key; return whether anything was.

    Not beside a divergence: an answer would let the run try again, with the signals that have come since.
    """
    items = await runtime.inbox(limit=1000)
    if any(item.kind is ItemKind.DIVERGENCE for item in items):
        return False
    doubts = [item for item in items if item.kind is ItemKind.DOUBT]
    for item in doubts:
        asked = item.asked
        done = next((one for one in book.events if one.fact == "effect" and one.key == asked.key), None)
        given = {name: msgspec.json.decode(value) for name, value in asked.arguments.items()}
        book.add(Event("settled", book.life, to=given.get("to", ""), n=given.get("n", 0), key=asked.key))
        result = UNSET if done is None else ledger.value(done.lineage, done.to, done.n)
        await item.settle(happened=done is not None, result=result, by="person")
    return bool(doubts)


async def accept_divergence(runtime: nl.Runtime) -> None:
    """Say, as a person after a change of the code, that the run may go on."""
    for item in await runtime.inbox(limit=1000):
        if item.kind is ItemKind.DIVERGENCE:
            await item.retry(by="person")


class _Store(MemoryStore):
    """A memory store that wakes the present life at once when something has happened."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.clock)
        self._stage = stage

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs; one verdict each."""
        if not ends_turn(batch):
            return super().commit(batch)
        self._stage.end_turn("before")
        verdicts = super().commit(batch)
        self._stage.end_turn("after")
        return verdicts

    def _wake(self) -> None:
        super()._wake()
        self._stage.wake()


def ends_turn(batch: Sequence[Commit]) -> bool:
    """Return whether a commit ends a turn."""
    return any(record.kind is Kind.TURN for one in batch for record in one.records)
