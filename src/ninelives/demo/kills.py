"""When to kill the worker: moments drawn from a seed, played by chaos as faults inside the process."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf
from random import Random

from msgspec import Struct

from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault
from ninelives.chaos.trial.scenarios import Scenario

DECISION, EFFECTS = "choose", ("refund", "book_technician")
STEPS = (DECISION, "order_status", "technician_times", *EFFECTS)


class Moment(StrEnum):
    """What is going on at the kill; completes the sentence "kill -9 while …"."""

    EFFECT = "an effect is done but not recorded"
    THOUGHT = "the model is thinking"
    RECORD = "a record is on its way to the store"
    STEP = "a step has just been recorded"
    RECOVERY = "it recovers from the kill before"


_FAULTS = {
    Moment.EFFECT: (FaultMoment.END, EFFECTS),
    Moment.THOUGHT: (FaultMoment.BEGIN, (DECISION,)),
    Moment.RECORD: (FaultMoment.BEFORE, STEPS),
    Moment.STEP: (FaultMoment.PROGRESS, STEPS),
    Moment.RECOVERY: (FaultMoment.AFTER, ("load_journal",)),
}
_MOMENTS = {fault.name: moment for moment, (fault, _) in _FAULTS.items()}


class Strike(Struct, frozen=True):
    """One planned kill: the moment, how many such moments to let pass first, and seconds of thought."""

    moment: Moment
    count: int
    seconds: float


def plan(kills: int, random: Random) -> list[Strike]:
    """Draw the kills: all moments in shuffled rounds; each round includes the worst one, EFFECT."""
    drawn: list[Moment] = []
    while len(drawn) < kills:
        others = [moment for moment in Moment if moment is not Moment.EFFECT]
        some = [Moment.EFFECT, *random.sample(others, len(others))][: kills - len(drawn)]
        random.shuffle(some)
        drawn += some
    if drawn[0] is Moment.RECOVERY:  # before the first kill there is no recovery
        drawn[0] = Moment.STEP
    return [_strike(moment, random) for moment in drawn]


def _strike(moment: Moment, random: Random) -> Strike:
    fewest, most = {Moment.EFFECT: (0, 0), Moment.RECOVERY: (0, 1)}.get(moment, (2, 4))
    seconds = random.uniform(0.01, 0.06) if moment is Moment.THOUGHT else 0.0
    return Strike(moment, random.randint(fewest, most), seconds)


def moment_of(fault: LedgerLine) -> Moment:
    """Return the moment of a kill in the ledger."""
    return _MOMENTS[fault.target]


class Strikes(Scenario):
    """The planned kills, one for each process. `effects` are the steps that act on the shop."""

    def __init__(self, strikes: Sequence[Strike], effects: Sequence[str]) -> None:
        super().__init__("killed")
        self._strikes, self._effects = strikes, set(effects)

    def left(self, lines: Sequence[LedgerLine]) -> list[Strike]:
        """Return the kills that were not made yet."""
        left = list(self._strikes)
        for line in lines:
            if line.what is What.FAULT:
                left.remove(next(one for one in left if one.moment is moment_of(line)))
        return left

    def fault(self, lines: list[LedgerLine], left_seconds: float = inf) -> InjectedFault | None:  # noqa: ARG002
        """Return the next kill; one at an effect only while there are effects to come."""
        recorded = {step for line in lines for kind, step in line.records if kind in ("result", "failure")}
        left = [
            one for one in self.left(lines) if one.moment is not Moment.EFFECT or self._effects - recorded
        ]
        if not left:
            return None
        strike, (moment, among) = left[0], _FAULTS[left[0].moment]
        # A step that was killed at its effect begins the next process: it must get further this time.
        passed = [
            line.step for line in lines if line.what is What.FAULT and line.target == FaultMoment.END.name
        ]
        return InjectedFault(
            kind=FaultKind.KILL,
            moment=moment,
            passed=tuple(passed),
            among=among,
            skip=strike.count,
            seconds=strike.seconds,
        )
