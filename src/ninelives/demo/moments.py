"""When to kill the worker: moments that are visible from outside, drawn from a seed."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from msgspec import Struct


class Moment(StrEnum):
    """What is going on at the kill; completes the sentence "kill -9 while …"."""

    EFFECT = "an effect is done but its answer has not arrived"
    ANSWER = "the shop's answer arrives"
    THOUGHT = "the model is thinking"
    STEP = "a step has just been recorded"
    RECOVERY = "it recovers from the kill before"


class Strike(Struct, frozen=True):
    """One planned kill: the moment, and the number of such moments or the seconds to wait for first."""

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
    return [Strike(moment, random.randint(1, 2), random.uniform(0, 0.06)) for moment in drawn]
