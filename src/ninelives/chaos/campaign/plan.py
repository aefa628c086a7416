"""The plan: which scripts a run is put through, and how much of the time each of them has.

Every kind of fault has its turn before any has a second one. A script may take what the later ones will not
need, and no less than an equal share: of a long run it then leaves places out, and says how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from ninelives.chaos.ledger import What
from ninelives.chaos.protocol import OUTCOMES, Deed, FaultMoment, InjectedFault
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
"""In one trial, at most."""
_LIFE_SECONDS = 0.15
"""What a life takes beside loading the code and the step that is executed again."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What was asked for. `at` is every-step, random, FILE:LINE, or nothing: all there is."""

    kills: int
    seconds: float
    at: str
    seed: int
    may_fail: bool = False
    """Whether a failure is the right end of this run, whatever it failed with."""


class Plan(Struct, frozen=True):
    """The scripts that must have their turn, those for which there may be time after them, and all kinds."""

    scripts: list[Scenario]
    more: list[Scenario]
    kinds: tuple[str, ...]


def plan(calm: Trial, wishes: Wishes, left_seconds: float) -> Plan:
    """Choose the scripts, the most telling first."""
    steps = _steps(calm)
    kills = [_walk(calm, Deed.KILL, moment) for moment in _MOMENTS]
    nested = Nested(min(MOST_KILLS, 4 * max(1, len(steps))))
    dice = Dice(wishes.kills, calm.seconds, Random(wishes.seed))
    if wishes.at == EVERY_STEP:
        return _of([*kills, nested])
    if wishes.at == RANDOM:
        return _of([dice])
    if wishes.at:
        return _of([Walk(Deed.KILL, FaultMoment.LINE, wishes.kills, line=wishes.at)])
    deploys = _walk(calm, Deed.TERM, FaultMoment.PROGRESS)
    full = Full(_places(calm, FaultMoment.BEFORE))
    first, *more = (list(_at(calm, step)) for step in _telling(calm)) if steps else ([],)
    whole = [kills[0], dice, full, *first, deploys, *kills[1:], nested]
    kinds = tuple(dict.fromkeys(script.kind for script in whole))
    again = [script for place in more for script in place]
    if 2 * calm.seconds * len(whole) > left_seconds > 2 * calm.seconds:
        return Plan([Turns([*kills, deploys]), dice, full, *first, nested], again, kinds)
    return Plan(whole, again, kinds)


def share(calm: Trial, scripts: Sequence[Scenario], left_seconds: float) -> float:
    """Return how long the first of the scripts may go on: what the others leave, or an equal share."""
    others = sum(calm.seconds + script.lives * life_seconds(calm) for script in scripts[1:])
    return max(left_seconds / len(scripts), left_seconds - others)


def life_seconds(calm: Trial) -> float:
    """Estimate what a death costs: the code is loaded again, and a step executed again."""
    ready = next((line.at for line in calm.lines if line.what is What.READY), calm.began_at)
    loading = ready - calm.lives[0].began_at
    return _LIFE_SECONDS + loading + (calm.seconds - loading) / max(1, len(_steps(calm)))


_MOMENTS = (FaultMoment.END, FaultMoment.AFTER, FaultMoment.BEGIN, FaultMoment.BEFORE)


def _of(scripts: list[Scenario]) -> Plan:
    return Plan(scripts, [], tuple(script.kind for script in scripts))


def _walk(calm: Trial, deed: Deed, moment: FaultMoment) -> Walk:
    return Walk(deed, moment, MOST_KILLS, places=_places(calm, moment))


def _places(calm: Trial, moment: FaultMoment) -> list[str]:
    """Return the moments of a kind that the run came to without faults, named as the trap names them."""
    if moment in (FaultMoment.BEGIN, FaultMoment.END):
        return _steps(calm)
    stored = [record for line in calm.lines if line.what is What.STORED for record in line.data["records"]]
    if moment is FaultMoment.PROGRESS:
        named = [step_text(step) or kind for kind, step in stored if kind in OUTCOMES]
    else:
        named = [f"{kind} {step_text(step)}".strip() for kind, step in stored]
    return list(dict.fromkeys(named))


def _at(calm: Trial, step: str) -> Iterator[Scenario]:
    """Yield a hang, and a store that is away or whose answer is lost, at one step."""
    hangs = [InjectedFault(deed=Deed.STOP, moment=FaultMoment.PROGRESS, only=step)]
    if _is_resumable(calm, step):
        hangs.append(InjectedFault(deed=Deed.STOP, moment=FaultMoment.END, only=step))
    for fault in hangs:
        yield Once(f"hung {fault.moment}, past its lease", fault, lease_seconds=HANG_LEASE_SECONDS)
    cut = InjectedFault(deed=Deed.CUT, moment=FaultMoment.PROGRESS, only=step, seconds=CUT_SECONDS)
    yield Once("store cut off", cut, lease_seconds=HANG_LEASE_SECONDS)
    yield Once("store's answer lost", InjectedFault(deed=Deed.LOST, moment=FaultMoment.PROGRESS, only=step))


def _telling(calm: Trial) -> list[str]:
    """Return the middle, the last and the first of the steps that do something; of all, if none does."""
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
