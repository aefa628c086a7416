"""Run the campaign: two calm runs (without faults), then every trial that fits into the time budget.

The calm runs are compared with each other first. Whatever differs between them (a model's words, a time of
day) is ignored when trials are compared. If a trial still differs, more calm runs follow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.chaos.campaign.comparison import is_alike
from ninelives.chaos.campaign.plan import EVERY_STEP, RANDOM, Wishes, plan, share
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.scenarios import Scenario
from ninelives.chaos.trial.trial import Ground, Trial, TrialStage
from ninelives.core.errors import Permanent, UsageError
from ninelives.core.model.inbox import ItemKind

_MOST_CALM = 6
"""Maximum number of calm runs, made while trials differ from them."""
_FIRST_SECONDS = 15.0
"""Minimum time for the first trial, however small the whole budget is."""
_PATIENCE_SECONDS, _PATIENCE = 15.0, 5
"""After its last fault a run may take this many seconds, or this many times a calm run's time."""


class Campaign(Struct):
    """All trials, and what the time budget left out."""

    calm: list[Trial]
    trials: list[Trial]
    left_out: list[str]
    """The kinds of fault that were never tried."""
    seconds: float = 0.0
    shortened: list[str] = []
    """The scenarios that were tried only at some points."""
    failure: str = ""
    """The error of the calm runs, when failing is the expected result."""
    error: str = ""
    """Why no report is possible."""

    @property
    def kills(self) -> int:
        """Count the processes that were killed."""
        return sum(line.kind == "KILL" for trial in self.trials for line in trial.faults)


Progress = Callable[[str, int, int], None]
"""Called before each trial with its name, the number of trials done, and their total."""


def carry_out(ground: Ground, wishes: Wishes, progress: Progress) -> Campaign:
    """Run all trials. If the calm runs already fail, run none and set `error`.

    Raises UsageError for an agent that cannot be started, and for a line that is never reached.
    """
    began_at = time.monotonic()
    campaign = Campaign([], [], [])
    _begin(ground, campaign, wishes, progress)
    if not campaign.error:
        _try_all(ground, campaign, wishes, progress, began_at + wishes.seconds)
        _add_calm_runs(ground, campaign, until=began_at + wishes.seconds + max(5.0, wishes.seconds / 4))
        _check_faults(campaign, wishes)
    campaign.seconds = time.monotonic() - began_at
    return campaign


def _begin(ground: Ground, campaign: Campaign, wishes: Wishes, progress: Progress) -> None:
    """Make the first two calm runs; set `error` if no trial is possible."""
    for number in (0, 1):
        follow = _announcing(progress, number)
        trial = TrialStage(ground, Scenario("without faults"), number, {}, follow).play(0.0)
        campaign.calm.append(trial)
        if not trial.has_ended:
            why, remedy = why_unended(trial), _advice(trial, ground)
            campaign.error = f"the run did not end even without faults: {why}. {remedy}"
            return
    ends = [(trial.state, _error(trial).get("name")) for trial in campaign.calm]
    if ends[0] != ends[1]:
        campaign.error = (
            f"two runs without faults ended differently, {ends[0][0]} and {ends[1][0]}: {_failures(campaign)}"
        )
    elif ends[0][0] != "completed" and not (wishes.may_fail or ends[0][1] == Permanent.__name__):
        campaign.error = (
            f"the run {ends[0][0]} even without faults: {_failures(campaign)}. Fix it; or, if failing is "
            "expected, raise nl.Permanent there or pass --may-fail"
        )
    elif ends[0][0] != "completed":
        campaign.failure = _failures(campaign)


def _announcing(progress: Progress, number: int) -> Callable[[list[LedgerLine]], None]:
    """Announce a calm run once its first process has loaded the code: only then is the target valid."""

    def follow(lines: list[LedgerLine]) -> None:
        if any(line.what is What.READY and line.life == 1 for line in lines):
            progress("without faults", number, 2)

    return follow


def _try_all(ground: Ground, campaign: Campaign, wishes: Wishes, progress: Progress, until: float) -> None:
    calm = campaign.calm[1]  # the first also waited for the fork servers to start
    chosen = plan(calm, wishes, until - time.monotonic())
    had: set[str] = set()
    count = len(chosen.scenarios) + len(chosen.more)
    for number, scenario in enumerate((*chosen.scenarios, *chosen.more)):
        is_first = number == 0  # one trial runs in any case, whatever time is left
        left = until - time.monotonic()
        if left < calm.seconds and not is_first:
            break
        progress(scenario.name, number, count)
        rest = chosen.scenarios[number:] if number < len(chosen.scenarios) else [scenario]
        seconds = share(calm, rest, left)
        if is_first and wishes.seconds < _FIRST_SECONDS:
            seconds = _FIRST_SECONDS
        _play(ground, campaign, scenario, seconds)
        had.update(scenario.kinds)
        campaign.shortened += [scenario.shortened] if scenario.shortened else []
    campaign.left_out = [kind for kind in chosen.kinds if kind not in had]


def _play(ground: Ground, campaign: Campaign, scenario: Scenario, seconds: float) -> None:
    """Play a scenario; repeat it while the run ends before all planned faults were injected."""
    values = {step: value for _, kind, step, _, value in campaign.calm[0].journal if kind == "result"}
    usual = campaign.calm[1].seconds
    patience = min(max(_PATIENCE_SECONDS, _PATIENCE * usual), 2 * ground.limit_seconds)
    until, is_over = time.monotonic() + seconds, False
    while not is_over:
        stage = TrialStage(ground, scenario, len(campaign.trials) + 2, values)
        campaign.trials.append(stage.play(max(0.0, until - time.monotonic()), patience))
        is_over = not scenario.wants_more or until - time.monotonic() < usual


def _check_faults(campaign: Campaign, wishes: Wishes) -> None:
    if any(trial.faults for trial in campaign.trials):
        return
    if wishes.at not in ("", EVERY_STEP, RANDOM):
        raise UsageError(
            f"no fault was injected: {wishes.at} was never reached",
            remedy="Give a line that is executed in every run: a statement, not a def or a comment",
        )
    campaign.error = "no fault was injected: every run ended before its first fault; try --at every-step"


def _add_calm_runs(ground: Ground, campaign: Campaign, *, until: float) -> None:
    """Make more calm runs while a trial differs from all of them, before reporting the difference.

    Two calm runs may agree by chance, for example when a model chooses among a few words.
    """
    calm = campaign.calm
    while len(calm) < _MOST_CALM and not all(is_alike(calm, trial) for trial in campaign.trials):
        if time.monotonic() + calm[1].seconds > until:
            return
        number = len(campaign.trials) + len(calm)
        again = TrialStage(ground, Scenario("without faults"), number, {}).play(0.0)
        if again.state != calm[0].state:
            return
        calm.append(again)


def _advice(trial: Trial, ground: Ground) -> str:
    if "for the signal" in trial.why:  # the text of a run's wait for nl.receive
        return "Give the signal's value with --signal NAME=JSON"
    if any(item["kind"] == ItemKind.QUESTION for item in trial.inbox):
        answer = ground.settings.people.answer
        if answer:
            return f"The answer {answer} does not fit this question: give one that does, with --answer JSON"
        return "Give the answer to its questions with --answer JSON"
    if "in time" in trial.why:
        return "Chaos needs an agent that ends by itself; --limit gives it more time"
    return "Chaos needs an agent that ends by itself: fix this first"


def why_unended(trial: Trial) -> str:
    """Return why a run did not end, with the last line that it printed."""
    printed = trial.output.strip().splitlines()
    last = f"; its last output: {printed[-1]}" if printed else ""
    return f"{trial.why}{last}"


def _failures(campaign: Campaign) -> str:
    """Return the errors of the calm runs, with their lines in the user's code."""
    return " | ".join(dict.fromkeys(failure(trial) for trial in campaign.calm if trial.state != "completed"))


def failure(trial: Trial) -> str:
    """Return the error of a run, with its line in the user's code."""
    error = _error(trial)
    raised = [line for line in trial.lines if line.what is What.RAISED]
    locations = list(dict.fromkeys(line.location for line in raised if line.location))
    at = f", at {locations[-1]}" if locations else ""
    return f"{error.get('name', trial.state)}: {error.get('message', '')}{at}{_within(trial, locations)}"


def _within(trial: Trial, locations: list[str]) -> str:
    """Return the line in a step's body that raised the error; empty if it is already known."""
    ends = [line for line in trial.lines if line.what is What.END and line.kind == "raised" and line.location]
    return f" (raised at {ends[-1].location})" if ends and ends[-1].location not in locations else ""


def _error(trial: Trial) -> dict[str, Any]:
    return dict(msgspec.json.decode(trial.error)) if trial.error else {}
