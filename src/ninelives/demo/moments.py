"""When the worker is killed: moments that can be told from outside, drawn from a seed."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from msgspec import Struct


class Moment(StrEnum):
    """What is going on when the signal comes."""

    EFFECT = "the shop has done it, the answer is still out"
    ANSWER = "the shop has just answered"
    THOUGHT = "the model is thinking"
    STEP = "a step was recorded"
    RECOVERY = "it is recovering from the last one"


class Strike(Struct, frozen=True):
    """One planned kill: the moment, and after how many of that kind or how many seconds."""

    moment: Moment
    count: int
    seconds: float


def plan(kills: int, random: Random) -> list[Strike]:
    """Draw the kills: every kind in turn, in changing order, and the worst one always among them."""
    drawn: list[Moment] = []
    while len(drawn) < kills:
        others = [moment for moment in Moment if moment is not Moment.EFFECT]
        some = [Moment.EFFECT, *random.sample(others, len(others))][: kills - len(drawn)]
        random.shuffle(some)
        drawn += some
    if drawn[0] is Moment.RECOVERY:  # there is nothing to recover from yet
        drawn[0] = Moment.STEP
    return [Strike(moment, random.randint(1, 2), random.uniform(0, 0.06)) for moment in drawn]
