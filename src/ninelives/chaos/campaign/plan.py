"""Choose the scenarios of a campaign, and share the time budget among them.

Every kind of fault is tried once before any is tried again. A scenario gets the time that later ones do not
need, but at least an equal share. On a long run it then skips points, and reports how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from ninelives.chaos.ledger import OUTCOMES, What
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault
from ninelives.chaos.trial.scenarios import (
    CUT_SECONDS,
    HANG_LEASE_SECONDS,
    Dice,
    Full,
    Nested,
    Once,
    Scenario,
    Turns,
    Walk,
)
from ninelives.chaos.trial.trial import Trial
from ninelives.core.step_ids import step_text

EVERY_STEP, RANDOM = "every-step", "random"
MOST_KILLS = 200
"""Maximum number of kills in one trial."""
_LIFE_SECONDS = 0.15
"""Cost of one process beyond loading the code and repeating the interrupted step."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What the user asked for. `at` is every-step, random, FILE:LINE, or empty for all kinds of fault."""

    kills: int
    seconds: float
    at: str
    seed: int
    may_fail: bool = False
    """Whether failing is the expected result of this run, whatever the error."""


class Plan(Struct, frozen=True):
    """The scenarios to play, further ones to play if time is left, and all kinds of fault."""

    scenarios: list[Scenario]
    more: list[Scenario]
    kinds: tuple[str, ...]


def plan(calm: Trial, wishes: Wishes, left_seconds: float) -> Plan:
    """Choose the scenarios, the most revealing first."""
    steps = _steps(calm)
    kills = [_walk(calm, FaultKind.KILL, moment) for moment in _MOMENTS]
    nested = Nested(min(MOST_KILLS, 4 * max(1, len(steps))))
    dice = Dice(wishes.kills, calm.seconds, Random(wishes.seed))
    if wishes.at == EVERY_STEP:
        return _of([*kills, nested])
    if wishes.at == RANDOM:
        return _of([dice])
    if wishes.at:
        return _of([Walk(FaultKind.KILL, FaultMoment.LINE, wishes.kills, line=wishes.at)])
    deploys = _walk(calm, FaultKind.TERM, FaultMoment.PROGRESS)
    full = Full(_points(calm, FaultMoment.BEFORE))
    first, *more = (list(_at(calm, step)) for step in _revealing_steps(calm)) if steps else ([],)
    whole = [kills[0], dice, full, *first, deploys, *kills[1:], nested]
    kinds = tuple(dict.fromkeys(scenario.kind for scenario in whole))
    again = [scenario for at_step in more for scenario in at_step]
    if 2 * calm.seconds * len(whole) > left_seconds > 2 * calm.seconds:
        return Plan([Turns([*kills, deploys]), dice, full, *first, nested], again, kinds)
    return Plan(whole, again, kinds)


def share(calm: Trial, scenarios: Sequence[Scenario], left_seconds: float) -> float:
    """Return the time of the first scenario: what the others leave over, at least an equal share."""
    others = sum(calm.seconds + scenario.lives * life_seconds(calm) for scenario in scenarios[1:])
    return max(left_seconds / len(scenarios), left_seconds - others)


def life_seconds(calm: Trial) -> float:
    """Estimate the cost of one death: the code is loaded again, and one step executed again."""
    ready = next((line.at for line in calm.lines if line.what is What.READY), calm.began_at)
    loading = ready - calm.lives[0].began_at
    return _LIFE_SECONDS + loading + (calm.seconds - loading) / max(1, len(_steps(calm)))


_MOMENTS = (FaultMoment.END, FaultMoment.AFTER, FaultMoment.BEGIN, FaultMoment.BEFORE)


def _of(scenarios: list[Scenario]) -> Plan:
    return Plan(scenarios, [], tuple(scenario.kind for scenario in scenarios))


def _walk(calm: Trial, kind: FaultKind, moment: FaultMoment) -> Walk:
    return Walk(kind, moment, MOST_KILLS, points=_points(calm, moment))


def _points(calm: Trial, moment: FaultMoment) -> list[str]:
    """Return the points of a moment that the calm run passed, with the names the fault injector uses."""
    if moment in (FaultMoment.BEGIN, FaultMoment.END):
        return _steps(calm)
    stored = [record for line in calm.lines for record in line.records]
    if moment is FaultMoment.PROGRESS:
        named = [step_text(step) or kind for kind, step in stored if kind in OUTCOMES]
    else:
        named = [f"{kind} {step_text(step)}".strip() for kind, step in stored]
    return list(dict.fromkeys(named))


def _at(calm: Trial, step: str) -> Iterator[Scenario]:
    """Yield a hang, an unreachable store and a lost store answer, all at one step."""
    hangs = [InjectedFault(kind=FaultKind.STOP, moment=FaultMoment.PROGRESS, only=step)]
    if _is_resumable(calm, step):
        hangs.append(InjectedFault(kind=FaultKind.STOP, moment=FaultMoment.END, only=step))
    for fault in hangs:
        yield Once(f"hung {fault.moment}, past its lease", fault, lease_seconds=HANG_LEASE_SECONDS)
    cut = InjectedFault(kind=FaultKind.CUT, moment=FaultMoment.PROGRESS, only=step, seconds=CUT_SECONDS)
    yield Once("store cut off", cut, lease_seconds=HANG_LEASE_SECONDS)
    yield Once(
        "store's answer lost", InjectedFault(kind=FaultKind.LOST, moment=FaultMoment.PROGRESS, only=step)
    )


def _revealing_steps(calm: Trial) -> list[str]:
    """Return the middle, last and first step that acts; of all steps if none acts."""
    steps = _steps(calm)
    questions = {
        line.step
        for line in calm.lines
        if line.what is What.DECLARED and (line.data["is_decision"] or line.data["reads_only"])
    }
    acting = [step for step in steps if _name(calm, step) not in questions] or steps
    return list(dict.fromkeys((acting[len(acting) // 2], acting[-1], acting[0])))


def _steps(calm: Trial) -> list[str]:
    """Return the steps that were executed, in the order in which they began."""
    return list(dict.fromkeys(step_text(line.step) for line in calm.lines if line.what is What.BEGIN))


def _name(calm: Trial, step: str) -> str:
    begun = (line for line in calm.lines if line.what is What.BEGIN and step_text(line.step) == step)
    return str(next(begun).data["name"])


def _is_resumable(calm: Trial, step: str) -> bool:
    name = _name(calm, step)
    declared = (line for line in calm.lines if line.what is What.DECLARED and line.step == name)
    return all(line.data["is_resumable"] for line in declared)
