"""The campaign: two runs without faults, then every trial that there is time for.

The calm runs are compared with each other first: what differs between them (a model's words, a time of
day) is not held against the runs with faults. Where one of those differs all the same, more calm runs
follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from msgspec import Struct

from ninelives.chaos.ledger import What
from ninelives.chaos.likeness import is_alike
from ninelives.chaos.order import Deed, Fault, Moment
from ninelives.chaos.script import CUT_SECONDS, HANG_LEASE_SECONDS, Calm, Dice, Nested, Once, Script, Walk
from ninelives.chaos.trial import ChaosFailed, Ground, Stage, Trial
from ninelives.core.inbox import ItemKind
from ninelives.core.keys import step_text

EVERY_STEP, RANDOM = "every-step", "random"
MOST_KILLS = 200
"""In one trial, at most."""
_MOST_CALM = 6
"""So many runs without faults, where runs with faults differ from them."""
_FIRST_SECONDS = 30.0
"""The first trial has so much time, however little was given for all."""


class Wishes(Struct, frozen=True, kw_only=True):
    """What was asked for. `at` is every-step, random, FILE:LINE, or nothing: all there is."""

    kills: int
    seconds: float
    at: str
    seed: int


class Campaign(Struct):
    """All trials, and what was left out for want of time."""

    calm: list[Trial]
    trials: list[Trial]
    left_out: list[str]
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """Count the processes that were killed."""
        return sum(line.kind == "KILL" for trial in self.trials for line in trial.faults)


Told = Callable[[str, int, int], None]
"""Told which trial is next, and how many of how many are done."""


def carry_out(ground: Ground, wishes: Wishes, told: Told) -> Campaign:
    """Run all trials. Raises ChaosFailed when already the runs without faults come to nothing."""
    began_at = time.monotonic()
    calm: list[Trial] = []
    for number in (0, 1):
        told("without faults", number, 2)
        trial = Stage(ground, Calm("without faults"), number, {}).play(0.0)
        calm.append(trial)
        if not trial.has_ended:
            raise ChaosFailed(_came_to_nothing(trial), remedy=_what_would_help(trial))
        if trial.state == "failed":
            return Campaign(calm, [], [], time.monotonic() - began_at)
    campaign = Campaign(calm, [], [])
    values = {step: value for _, kind, step, _, value in calm[0].journal if kind == "result"}
    scripts = list(plan(calm[1], wishes))  # the first has waited for the processes to come up
    done = 0
    while done < len(scripts):
        script, left = scripts[done], wishes.seconds - (time.monotonic() - began_at)
        if campaign.trials and left < calm[1].seconds:
            campaign.left_out += [one.name for one in scripts[done:]]
            break
        told(script.name, done, len(scripts))
        stage = Stage(ground, script, len(campaign.trials) + 2, values)
        campaign.trials.append(stage.play(max(left, _FIRST_SECONDS * (not campaign.trials))))
        done += not script.wants_more  # else: the run has ended too soon for all that was planned for it
    _look_again(ground, campaign, until=began_at + wishes.seconds + max(5.0, wishes.seconds / 4))
    campaign.seconds = time.monotonic() - began_at
    if not any(trial.faults for trial in campaign.trials):
        raise ChaosFailed(
            f"nothing befell the run: {wishes.at or 'no moment'} was never reached",
            remedy="Name a line that is executed in every run: a statement, not a def or a comment",
        )
    return campaign


def _look_again(ground: Ground, campaign: Campaign, *, until: float) -> None:
    """Run it without faults some more times before it is held against a run that it is not as those were.

    Two runs may be alike by chance, where a model has only few words to choose from.
    """
    calm = campaign.calm
    while len(calm) < _MOST_CALM and not all(is_alike(calm, trial) for trial in campaign.trials):
        if time.monotonic() + calm[1].seconds > until:
            return
        number = len(campaign.trials) + len(calm)
        again = Stage(ground, Calm("without faults"), number, {}).play(0.0)
        if again.state != calm[0].state:
            return
        calm.append(again)


def plan(calm: Trial, wishes: Wishes) -> Iterator[Script]:
    """Yield the scripts, the most telling first."""
    random = Random(wishes.seed)
    steps = _steps(calm)
    if wishes.at in ("", EVERY_STEP):
        for moment in (Moment.END, Moment.AFTER, Moment.BEGIN, Moment.BEFORE):
            yield Walk(Deed.KILL, moment, MOST_KILLS)
        yield Nested(min(MOST_KILLS, 4 * max(1, len(steps))))
    if wishes.at in ("", RANDOM):
        span = calm.seconds
        yield Dice(wishes.kills, span, random)
    if wishes.at not in ("", EVERY_STEP, RANDOM):
        yield Walk(Deed.KILL, Moment.LINE, wishes.kills, line=wishes.at)
    if wishes.at == "":
        yield from _other_faults(calm, steps)


def _other_faults(calm: Trial, steps: Sequence[str]) -> Iterator[Script]:
    """Yield a deploy, a full disk, a hang, and a store that is away or whose answer is lost."""
    yield Walk(Deed.TERM, Moment.PROGRESS, MOST_KILLS)
    yield Walk(Deed.FULL, Moment.BEFORE, MOST_KILLS)
    if not steps:
        return
    middle = steps[len(steps) // 2]
    hangs = [Fault(deed=Deed.STOP, moment=Moment.PROGRESS, only=middle)]
    resumable = [step for step in steps if _is_resumable(calm, step)]
    if resumable:
        hangs.append(Fault(deed=Deed.STOP, moment=Moment.END, only=resumable[-1]))
    for fault in hangs:
        yield Once(f"hung {fault.moment}, past its lease", fault, lease_seconds=HANG_LEASE_SECONDS)
    cut = Fault(deed=Deed.CUT, moment=Moment.PROGRESS, only=middle, seconds=CUT_SECONDS)
    yield Once("store cut off", cut, lease_seconds=HANG_LEASE_SECONDS)
    yield Once("store's answer lost", Fault(deed=Deed.LOST, moment=Moment.PROGRESS, only=middle))


def _steps(calm: Trial) -> list[str]:
    """Return the steps that were executed, in the order in which they began."""
    return list(dict.fromkeys(step_text(line.step) for line in calm.lines if line.what is What.BEGIN))


def _is_resumable(calm: Trial, step: str) -> bool:
    name = next(
        line.data["name"] for line in calm.lines if line.what is What.BEGIN and step_text(line.step) == step
    )
    declared = (line for line in calm.lines if line.what is What.DECLARED and line.step == name)
    return all(line.data["is_resumable"] for line in declared)


def _what_would_help(trial: Trial) -> str:
    if "for the signal" in trial.why:
        return "Say what comes, with --signal NAME=JSON"
    if any(item["kind"] == ItemKind.QUESTION for item in trial.inbox):
        return "Say what people answer, with --answer JSON"
    if "in time" in trial.why:
        return "Chaos needs an agent that ends by itself; --limit gives it more time"
    return "Chaos needs an agent that ends by itself: mend this first"


def _came_to_nothing(trial: Trial) -> str:
    said = trial.output.strip().splitlines()
    last = f"; it said: {said[-1]}" if said else ""
    return f"already without faults the run came to no end: {trial.why}{last}"
