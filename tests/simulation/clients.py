"""Those outside: they start runs, send signals, answer, control, and look until all has ended."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from msgspec import Raw

from ninelives.core.errors import RunFinished, StaleAnswer
from ninelives.core.journal.answers import Answer, Says, read_item_body
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Control, NewRun, RunQuery, RunRow, State
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import get_agent
from ninelives.engine.worker import run_retry
from ninelives.runtime.inbox import give
from tests.simulation import agents
from tests.simulation.ledger import Event, Fact, Ledger
from tests.simulation.machine import Machine, Process
from tests.simulation.outcomes import Started
from tests.simulation.store import Archive
from tests.simulation.world import World

MORE_RUNS = 1
_AGENTS: tuple[Any, ...] = (
    agents.thinker,
    agents.piped,
    agents.quitter,
    agents.payer,
    agents.payer,
    agents.shopper,
    agents.shopper,
    agents.regular,
    agents.regular,
    agents.signer,
    agents.quitter,
    agents.piped,
    agents.booker,
    agents.sleeper,
    agents.cancelled,
    agents.listener,
    agents.parent,
    agents.fan,
    agents.emitter,
    agents.turner,
    agents.failing,
    agents.mended,
    agents.holder,
    agents.threaded,
    agents.trying,
)
_CAREFUL_SECONDS = agents.LIMIT_SECONDS + agents.SETTLE_SECONDS
"""How long a person waits before he says that what may still happen has not."""


class Clients:
    """Everybody outside."""

    def __init__(
        self,
        machine: Machine,
        seed: int,
        archive: Archive,
        world: World,
        ledger: Ledger,
        tell: Callable[[Process, str], None],
    ) -> None:
        self._machine, self._archive, self._world = machine, archive, world
        self._ledger, self._tell = ledger, tell
        self._rng = Random(f"clients {seed}")
        self._process = Process(machine, "clients")
        self._has_started = False
        self.runs: list[Started] = []
        self.are_content = False

    def start(self) -> None:
        """Let them do what they do."""
        self._spawn(self._start_runs)
        self._spawn(self._answer)
        self._spawn(self._mend)
        self._spawn(self._prune)
        self._spawn(self._watch)

    def _spawn(self, work: Callable[[], None]) -> None:
        self._machine.spawn(self._process, work, "client")

    # Runs ---------------------------------------------------------------------------------------

    def _start_runs(self) -> None:
        for number, declared in enumerate([*_AGENTS, *self._rng.choices(_AGENTS, k=MORE_RUNS)]):
            self._machine.block(self._rng.expovariate(15))
            args: tuple[Any, ...] = (number, []) if declared is agents.turner else (number,)
            self._begin(declared, args, number)
        self._has_started = True

    def _begin(self, declared: Any, args: tuple[Any, ...], number: int) -> None:
        agent = get_agent(declared)
        body, _ = agent_arguments.encode(agent, args, {})
        run, told = f"{agent.name[4:]}-{number}", agent.fingerprint(args, {}).digest
        self._archive.create_runs([NewRun(id=run, agent=agent.name, fingerprint=told, body=body)])
        self.runs.append(Started(run, agent.name, number))
        self._ledger.write(Event(fact=Fact.STARTED, at=self._machine.now, process="clients", run=run))
        if declared is agents.cancelled and self._rng.random() < 0.3:
            self._archive.control_run(run, Control.CANCEL)  # before anybody has begun with it
        if declared is agents.listener:
            self._spawn(lambda: self._signal(run, number))
        elif declared is agents.cancelled or (declared is agents.shopper and self._rng.random() < 0.3):
            self._spawn(lambda: self._control(run, Control.CANCEL))
        elif declared in (agents.thinker, agents.fan, agents.payer) and self._rng.random() < 0.4:
            self._spawn(lambda: self._control(run, Control.PAUSE, Control.RESUME))

    def _signal(self, run: str, number: int) -> None:
        for one in range(2):
            self._machine.block(self._rng.expovariate(1))
            for _ in range(self._rng.choice((1, 2))):  # again, after a lost answer
                self._archive.send_signal(run, "go", b"%d" % (number * 10 + one), id=f"go-{one}")
        self._machine.block(self._rng.expovariate(0.5))
        if self._rng.random() < 0.5:
            try:
                self._archive.send_signal(run, "late", b"%d" % (number * 10 + 2))
            except RunFinished:
                self._tell(self._process, f"{run} had ended")

    def _control(self, run: str, *controls: Control) -> None:
        for control in controls:
            self._machine.block(self._rng.expovariate(0.7))
            try:
                self._archive.control_run(run, control)
            except RunFinished:
                return
            self._tell(self._process, f"{control} {run}")

    def _mend(self) -> None:
        self._machine.block(self._rng.uniform(1, 5))
        self._world.is_mended = True
        while not self.are_content:
            for run in self._archive.list_runs(RunQuery(states=(State.FAILED,), limit=1000)):
                if run.agent == "sim.mended":
                    run_retry.retry(self._archive, run.id)
                    self._tell(self._process, f"retried {run.id}")
            self._machine.block(1.0)

    def _prune(self) -> None:
        """Remove what has ended, once those have who would miss it."""
        while not self.are_content:
            self._machine.block(0.7)
            left = {run.agent for run in self._unfinished()}
            if self._has_started and left <= {"sim.regular", "sim.sleeper"}:
                self._archive.prune(ended_before_ms=self._archive.now_ms())

    # People -------------------------------------------------------------------------------------

    def _answer(self) -> None:
        while not self.are_content:
            self._machine.block(self._rng.expovariate(1))
            for item in self._archive.list_inbox(limit=1000):
                answer = self._answer_to(item)
                if answer is not None:
                    self._give(item, answer)

    def _give(self, item: Item, answer: Answer) -> None:
        try:
            give(self._archive, item, answer, by="somebody")
        except StaleAnswer:
            return
        asked = read_item_body(item)
        self._ledger.write(
            Event(
                fact=Fact.ANSWERED,
                at=self._machine.now,
                process="clients",
                run=item.run,
                step=item.step,
                name=answer.says,
                key=asked.key,
            )
        )

    def _answer_to(self, item: Item) -> Answer | None:
        """Return what a careful person says; None: he waits."""
        asked = read_item_body(item)
        if item.kind is ItemKind.QUESTION:
            return Answer(Says.VALUE, self._rng.choice(asked.options) if asked.options else Raw(b'"this"'))
        if item.kind is ItemKind.APPROVAL:
            return Answer(Says.APPROVED if self._rng.random() < 0.8 else Says.DENIED)
        if item.kind is not ItemKind.DOUBT:
            return Answer(Says.RETRY)
        found = self._world.effects.get(asked.key)
        if self._rng.random() < 0.1:
            return Answer(Says.FAIL)
        if found is not None:
            return Answer(Says.HAPPENED, Raw(msgspec.json.encode(found)))
        waited_ms = self._archive.now_ms() - item.opened_ms
        if asked.evidence["may still act"] != "no" and waited_ms < _CAREFUL_SECONDS * 1000:
            return None
        return Answer(Says.NOT_HAPPENED)

    # The end ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._has_started or self._unfinished():
            self._machine.block(0.5)
        self.are_content = True

    def _unfinished(self) -> list[RunRow]:
        """Return the runs that will still move; one that failed and is to be mended will."""
        return [
            run
            for run in self._archive.list_runs(RunQuery(limit=10_000))
            if not run.state.is_final or (run.state is State.FAILED and run.agent == "sim.mended")
        ]

    def unfinished(self) -> list[str]:
        """Say which runs have not ended."""
        return [f"{run.id} is {run.state} and waits {run.waits!r}" for run in self._unfinished()]
