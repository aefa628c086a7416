"""One seed: a store, a world, workers, runs, people, and a plan of faults, to the end, and its trace."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from msgspec import Struct

from tests.simulation import agents, seams
from tests.simulation.clients import Clients
from tests.simulation.coverage import Covered, of_ledger, watching
from tests.simulation.fleet import Fleet
from tests.simulation.judge import judge
from tests.simulation.ledger import Event, Ledger
from tests.simulation.machine import Machine, Process, Stuck
from tests.simulation.nemesis import Nemesis
from tests.simulation.plan import Plan, plan_of
from tests.simulation.remains import quiet
from tests.simulation.store import Archive
from tests.simulation.world import World

LONGEST_SECONDS = 250.0
"""When a run that has not ended counts as stuck: many leases after the last fault."""


class Report(Struct, frozen=True):
    """What a seed came to."""

    seed: int
    plan: Plan
    violations: list[str]
    trace: list[str]
    operations: int
    runs: int
    deaths: int
    seconds: float
    covered: Covered

    @property
    def digest(self) -> str:
        """Name the history: equal for equal ones."""
        return blake2b("\n".join(self.trace).encode(), digest_size=12).hexdigest()


class Simulation:
    """One seed."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self._seed, self._plan = seed, plan
        self.machine = machine = Machine(seed)
        self.trace: list[str] = []
        self._covered: Covered = Counter()
        self._nemesis = nemesis = Nemesis(plan)
        self._ledger = ledger = Ledger()
        ledger.readers.append(self._seen)
        self._archive = archive = Archive(machine, ledger, locks=seed % 2 == 0)
        self.world = world = World(machine, seed, nemesis, ledger, self._tell)
        self._fleet = Fleet(machine, seed, archive, nemesis, self._tell)
        self._clients = Clients(machine, seed, archive, world, ledger, self._tell)

    def _tell(self, process: Process, what: str) -> None:
        self.trace.append(f"{self.machine.now:.6f} {process.name} {what}")

    def _seen(self, event: Event) -> None:
        self.trace.append(f"{event.at:.6f} {event}")

    def run(self) -> Report:
        """Run to the end and judge."""
        machine, violations = self.machine, list[str]()
        try:
            self._clients.start()
            self._fleet.start()
            with watching(self._covered):
                machine.run(lambda: self._clients.are_content, LONGEST_SECONDS)
        except Stuck as stuck:
            violations += [f"I6: {stuck}: {what}" for what in self._clients.unfinished()]
        violations += machine.complaints
        violations += judge(self._archive, self.world, self._ledger.events, self._clients.runs)
        return Report(
            self._seed,
            self._plan,
            violations,
            self.trace,
            self._nemesis.operations,
            len(self._clients.runs),
            self._fleet.deaths,
            machine.now,
            self._covered + of_ledger(self._ledger.events, agents.PROTECTED) + self._struck(),
        )

    def _struck(self) -> Covered:
        return Counter({f"fault: {strike}": times for strike, times in self._nemesis.struck.items()})

    def close(self) -> None:
        """Unwind everything."""
        self.machine.tear_down()
        self._fleet.close()
        self.world.close()


def simulate(seed: int, plan: Plan | None = None) -> Report:
    """Run one seed, with the plan that belongs to it or another one."""
    simulation = Simulation(seed, plan_of(seed) if plan is None else plan)
    agents.Stage.world = simulation.world
    with quiet(), seams.on(simulation.machine, seed):
        try:
            return simulation.run()
        finally:
            simulation.close()
            agents.Stage.world = None
            del simulation
