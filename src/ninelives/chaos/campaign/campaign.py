"""The campaign: two runs without faults, then every trial that there is time for.

The calm runs are compared with each other first: what differs between them (a model's words, a time of
day) is not held against the runs with faults. Where one of those differs all the same, more calm runs
follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.chaos.campaign.comparison import is_alike
from ninelives.chaos.campaign.plan import EVERY_STEP, RANDOM, Wishes, plan, share
from ninelives.chaos.ledger import What
from ninelives.chaos.trial.scenarios import Calm, Scenario
from ninelives.chaos.trial.trial import Ground, Trial, TrialStage
from ninelives.core.errors import Permanent, UsageError
from ninelives.core.model.inbox import ItemKind

_MOST_CALM = 6
"""So many runs without faults, where runs with faults differ from them."""
_FIRST_SECONDS = 15.0
"""The first trial has so much time, however little was given for all."""
_PATIENCE_SECONDS, _PATIENCE = 15.0, 5
"""A run that nothing befalls any more has so long to come to its end, or so many times what it takes."""


class Campaign(Struct):
    """All trials, and what was left out for want of time."""

    calm: list[Trial]
    trials: list[Trial]
    left_out: list[str]
    """The kinds of fault that never had their turn."""
    seconds: float = 0.0
    shortened: list[str] = []
    """Those that had it, and not at every place."""
    failure: str = ""
    """What it fails with without faults, where that is its right end."""
    error: str = ""
    """Why there is nothing to judge."""

    @property
    def kills(self) -> int:
        """Count the processes that were killed."""
        return sum(line.kind == "KILL" for trial in self.trials for line in trial.faults)


Told = Callable[[str, int, int], None]
"""Told which trial is next, and how many of how many are done."""


def carry_out(ground: Ground, wishes: Wishes, told: Told) -> Campaign:
    """Run all trials; none when already the runs without faults come to nothing, which `error` says.

    Raises UsageError for an agent that cannot be started, and for a line that is never reached.
    """
    began_at = time.monotonic()
    campaign = Campaign([], [], [])
    _begin(ground, campaign, wishes, told)
    if not campaign.error:
        _try_all(ground, campaign, wishes, told, began_at + wishes.seconds)
        _look_again(ground, campaign, until=began_at + wishes.seconds + max(5.0, wishes.seconds / 4))
        _check_faults(campaign, wishes)
    campaign.seconds = time.monotonic() - began_at
    return campaign


def _begin(ground: Ground, campaign: Campaign, wishes: Wishes, told: Told) -> None:
    """Run it twice without faults, and say why it cannot be tried if it cannot."""
    for number in (0, 1):
        say = _saying(told, number)
        trial = TrialStage(ground, Calm("without faults"), number, {}, say).play(0.0)
        campaign.calm.append(trial)
        if not trial.has_ended:
            why, remedy = _came_to_nothing(trial), _what_would_help(trial, ground)
            campaign.error = f"already without faults the run came to no end: {why}. {remedy}"
            return
    ends = [(trial.state, _error(trial).get("name")) for trial in campaign.calm]
    if ends[0] != ends[1]:
        campaign.error = (
            f"without faults the run was {ends[0][0]}, and then {ends[1][0]}: {_failures(campaign)}"
        )
    elif ends[0][0] != "completed" and not (wishes.may_fail or ends[0][1] == Permanent.__name__):
        campaign.error = (
            f"already without faults the run {ends[0][0]}: {_failures(campaign)}. Mend it; or, if that is "
            "its right end, raise nl.Permanent there, or say --may-fail"
        )
    elif ends[0][0] != "completed":
        campaign.failure = _failures(campaign)


def _saying(told: Told, number: int) -> Callable[[], None]:
    return lambda: told("without faults", number, 2)


def _try_all(ground: Ground, campaign: Campaign, wishes: Wishes, told: Told, until: float) -> None:
    calm = campaign.calm[1]  # the first has waited for the processes to come up
    chosen = plan(calm, wishes, until - time.monotonic())
    had: set[str] = set()
    count = len(chosen.scripts) + len(chosen.more)
    for number, script in enumerate((*chosen.scripts, *chosen.more)):
        is_first = number == 0  # one there must be, whatever is left
        left = until - time.monotonic()
        if left < calm.seconds and not is_first:
            break
        told(script.name, number, count)
        rest = chosen.scripts[number:] if number < len(chosen.scripts) else [script]
        seconds = share(calm, rest, left)
        if is_first and wishes.seconds < _FIRST_SECONDS:
            seconds = _FIRST_SECONDS
        _play(ground, campaign, script, seconds)
        had.update(script.kinds)
        campaign.shortened += [script.shortened] if script.shortened else []
    campaign.left_out = [kind for kind in chosen.kinds if kind not in had]


def _play(ground: Ground, campaign: Campaign, script: Scenario, seconds: float) -> None:
    """Play a script, again and again while the run ends too soon for all that was planned for it."""
    values = {step: value for _, kind, step, _, value in campaign.calm[0].journal if kind == "result"}
    usual = campaign.calm[1].seconds
    patience = min(max(_PATIENCE_SECONDS, _PATIENCE * usual), 2 * ground.limit_seconds)
    until, is_over = time.monotonic() + seconds, False
    while not is_over:
        stage = TrialStage(ground, script, len(campaign.trials) + 2, values)
        campaign.trials.append(stage.play(max(0.0, until - time.monotonic()), patience))
        is_over = not script.wants_more or until - time.monotonic() < usual


def _check_faults(campaign: Campaign, wishes: Wishes) -> None:
    if any(trial.faults for trial in campaign.trials):
        return
    if wishes.at not in ("", EVERY_STEP, RANDOM):
        raise UsageError(
            f"nothing befell the run: {wishes.at} was never reached",
            remedy="Name a line that is executed in every run: a statement, not a def or a comment",
        )
    campaign.error = "nothing befell the run: it was over each time before a fault came; try --at every-step"


def _look_again(ground: Ground, campaign: Campaign, *, until: float) -> None:
    """Run it without faults some more times before it is held against a run that it is not as those were.

    Two runs may be alike by chance, where a model has only few words to choose from.
    """
    calm = campaign.calm
    while len(calm) < _MOST_CALM and not all(is_alike(calm, trial) for trial in campaign.trials):
        if time.monotonic() + calm[1].seconds > until:
            return
        number = len(campaign.trials) + len(calm)
        again = TrialStage(ground, Calm("without faults"), number, {}).play(0.0)
        if again.state != calm[0].state:
            return
        calm.append(again)


def _what_would_help(trial: Trial, ground: Ground) -> str:
    if "for the signal" in trial.why:
        return "Say what comes, with --signal NAME=JSON"
    if any(item["kind"] == ItemKind.QUESTION for item in trial.inbox):
        said = ground.people.answer
        if said:
            return f"The answer {said} does not fit this question: give one that does, with --answer JSON"
        return "Say what people answer, with --answer JSON"
    if "in time" in trial.why:
        return "Chaos needs an agent that ends by itself; --limit gives it more time"
    return "Chaos needs an agent that ends by itself: mend this first"


def _came_to_nothing(trial: Trial) -> str:
    said = trial.output.strip().splitlines()
    last = f"; it said: {said[-1]}" if said else ""
    return f"{trial.why}{last}"


def _failures(campaign: Campaign) -> str:
    """Say what the runs without faults have failed with, and where in the user's code."""
    return " | ".join(dict.fromkeys(failure(trial) for trial in campaign.calm if trial.state != "completed"))


def failure(trial: Trial) -> str:
    """Say what a run has failed with, and where in the user's code."""
    error = _error(trial)
    raised = [line for line in trial.lines if line.what is What.RAISED]
    places = list(dict.fromkeys(line.place for line in raised if line.place))
    at = f", at {places[-1]}" if places else ""
    return f"{error.get('name', trial.state)}: {error.get('message', '')}{at}{_within(trial, places)}"


def _within(trial: Trial, places: list[str]) -> str:
    """Name the line in the body of a step that the failure began with."""
    ends = [line for line in trial.lines if line.what is What.END and line.kind == "raised" and line.place]
    return f" (raised at {ends[-1].place})" if ends and ends[-1].place not in places else ""


def _error(trial: Trial) -> dict[str, Any]:
    return dict(msgspec.json.decode(trial.error)) if trial.error else {}
