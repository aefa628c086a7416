"""Many seeds, one after the other: what was wrong, and what was covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from msgspec import Struct, field

from tests.simulation.coverage import missing
from tests.simulation.remains import quiet
from tests.simulation.simulation import Report, simulate

LEAST_RUNS, LEAST_OPERATIONS = 20, 200
_OTHERS, _SOME = 1_000_000, 10


class Tally(Struct):
    """What many seeds came to."""

    seeds: int = 0
    operations: int = 0
    runs: int = 0
    deaths: int = 0
    seconds: float = 0.0
    red: list[str] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Add a seed."""
        self.seeds += 1
        self.operations += report.operations
        self.runs += report.runs
        self.deaths += report.deaths
        self.seconds += report.seconds
        self.covered.update(report.covered)
        if report.violations:
            self.red.append(f"{again(report.seed)}\n  " + "\n  ".join(report.violations[:5]))
        if report.runs < LEAST_RUNS or report.operations < LEAST_OPERATIONS:
            self.red.append(
                f"seed {report.seed} is too small: {report.runs} runs, {report.operations} operations"
            )

    def join(self, other: Tally) -> None:
        """Add what others came to."""
        self.seeds += other.seeds
        self.operations += other.operations
        self.runs += other.runs
        self.deaths += other.deaths
        self.seconds += other.seconds
        self.covered.update(other.covered)
        self.red += other.red


def again(seed: int) -> str:
    """Say how to see a seed again."""
    return f"python -m tests.simulation --seed {seed} --trace"


def run_all(seeds: Iterable[int], told: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Run seeds."""
    tally = Tally()
    with quiet():
        for seed in seeds:
            tally.add(simulate(seed))
            told(tally)
    return tally


def run_covering(seeds: range) -> Tally:
    """Run seeds, and as many others at most until all is come by: what is rare may be missed by chance."""
    tally = run_all(seeds)
    others = iter(range(_OTHERS + seeds.start, _OTHERS + seeds.stop))
    while missing(tally.covered) and (some := list(islice(others, _SOME))):
        tally.join(run_all(some))
    return tally
