"""Campaigns: a program is killed in many ways, each time carried on to its end, and judged."""

from __future__ import annotations

import time
from collections.abc import Iterable
from random import Random

from msgspec import Struct

from ninelives.core.model.run import State
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from tests.replay import agents
from tests.replay.judge import judge
from tests.replay.lives import HUNG, End, Kill, live
from tests.replay.programs import program_of
from tests.replay.world import World

MOST_DEATHS = 6
MOST_NAPS = 3000


class Case(Struct, frozen=True):
    """A program, and when its first lives die."""

    seed: int
    kills: tuple[Kill, ...]

    @property
    def command(self) -> str:
        """Say how to run this case again."""
        kills = ",".join(f"{kill.at}:{kill.count}" for kill in self.kills)
        return f"python -m tests.replay --program {self.seed} --kills {kills or 'none'}"


class Verdict(Struct):
    """What a case came to."""

    case: Case
    deaths: list[str]
    violations: list[str]
    last: End

    def __str__(self) -> str:
        violations = "\n".join(self.violations)
        return f"{self.case.command}\ndied {self.deaths}\n{violations}\n{program_of(self.case.seed)}"


def perform(case: Case) -> Verdict:
    """Run a program through its deaths to its end, and judge it."""
    program = program_of(case.seed)
    store, world, run = MemoryStore(SystemClock()), World(case.seed), f"r{case.seed}"
    agents.WORLDS[run] = world
    deaths: list[str] = []
    for kill in case.kills:
        end = live(
            store, world, program.agent, (case.seed, 0, ""), run, kill, is_dedicated=case.seed % 2 == 0
        )
        if end.where is None:
            break
        deaths.append(end.where)
    end = live(store, world, program.agent, (case.seed, 0, ""), run, None)
    for _ in range(MOST_NAPS):
        if end.where is not None or not _is_asleep(store, run):
            break
        time.sleep(0.01)
        end = live(store, world, program.agent, (case.seed, 0, ""), run, None)
    violations = [f"an unhandled error: {complaint}" for complaint in end.complaints]
    if HUNG in (end.where, *deaths):
        violations.append("I6: the run is stuck")
    return Verdict(case, deaths, violations + judge(store, program, run, world.events), end)


def _is_asleep(store: MemoryStore, run: str) -> bool:
    row = store.read_run(run)
    return row is not None and row.state is State.CHECKPOINTED and row.due_ms is not None


def cases_of(seed: int, rng: Random, *, sweep: int, random: int) -> Iterable[Verdict]:
    """Perform a program without a kill, then with kills: at `sweep` store calls, and `random` nested ones."""
    first = perform(Case(seed, ()))
    yield first
    calls, rounds = len(first.last.calls), first.last.rounds
    points = [Kill(side, number) for number in range(1, calls + 1) for side in ("before", "after")]
    for kill in points if len(points) <= sweep else rng.sample(points, sweep):
        yield perform(Case(seed, (kill,)))
    for _ in range(random):
        kills = tuple(_random_kill(rng, calls, rounds) for _ in range(rng.randint(1, MOST_DEATHS)))
        yield perform(Case(seed, kills))


def at_random(seed: int, rng: Random) -> Iterable[Verdict]:
    """Perform a program with one kill at a store call, and with several anywhere; some come too late."""
    steps = repr(program_of(seed)).count("Call(")
    calls, rounds = 10 + steps, 30 + 5 * steps
    yield perform(Case(seed, (Kill(rng.choice(("before", "after")), rng.randint(1, calls)),)))
    kills = tuple(_random_kill(rng, calls, rounds) for _ in range(rng.randint(1, MOST_DEATHS)))
    yield perform(Case(seed, kills))


def at_every_call(seed: int) -> Iterable[Verdict]:
    """Kill a program before and after every call of its store."""
    return cases_of(seed, Random(seed), sweep=1_000_000, random=0)


def _random_kill(rng: Random, calls: int, rounds: int) -> Kill:
    if rng.random() < 0.6:
        return Kill("round", rng.randint(1, rounds))
    return Kill(rng.choice(("before", "after")), rng.randint(1, calls))
