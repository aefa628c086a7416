"""The nemesis: carries out a plan, one fault at the operation that it is meant for."""

from __future__ import annotations

from collections import Counter

from tests.simulation.machine import Process
from tests.simulation.plan import Fault, Plan, Strike


class Nemesis:
    """What is left of a plan while it is carried out."""

    def __init__(self, plan: Plan) -> None:
        self._left = list(plan)
        self.operations = 0
        self.struck: Counter[Strike] = Counter()

    def next(self, site: str) -> Fault | None:
        """Count an operation, and return the fault that strikes it."""
        self.operations += 1
        for number, fault in enumerate(self._left):
            if fault.at > self.operations:
                return None
            if fault.on in ("", site):
                del self._left[number]
                self.struck[fault.strike] += 1
                return fault
        return None

    @property
    def is_over(self) -> bool:
        """Tell whether no fault can strike any more."""
        return not self._left

    def heal(self) -> None:
        """Give up what has not struck."""
        self._left.clear()


def befall(process: Process, fault: Fault) -> None:
    """Do to a process what a fault does before its operation; does not return if that is its death."""
    machine, seconds = process.machine, fault.seconds
    if fault.strike is Strike.KILL_BEFORE:
        process.die()
    elif fault.strike is Strike.PARTITION:
        process.cut_off_until = machine.now + seconds
    elif fault.strike is Strike.PAUSE:
        process.paused_until = machine.now + seconds
    elif fault.strike is Strike.CLOCK:
        process.wall_ms += int((seconds - 4) * 900_000)
    elif fault.strike is Strike.TERM:
        process.stop()
