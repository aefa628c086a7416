"""Compute the four numbers by comparing the trials with the calm runs.

Recovery time is reported twice: without and with the time to load the user's code.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.campaign.comparison import (
    differing_files,
    has_same_journal,
    has_same_result,
    results_agree,
)
from ninelives.chaos.findings.effects import (
    counted,
    effects,
    executed_again,
    landed_late,
    surplus,
    unsafe_requests,
)
from ninelives.chaos.findings.finding import Finding
from ninelives.chaos.ledger import What
from ninelives.chaos.trial.trial import Trial

RECOVERY_SECONDS = 1.0
LOADED_RECOVERY_SECONDS = 30.0


class Number(Struct, frozen=True):
    """A measured number, its target, and whether the target is met."""

    name: str
    value: str
    target: str
    is_met: bool
    note: str
    amount: float | None = None
    """The value as a number: seconds, or a share of 1; None when nothing was measured."""


class MeasuredRecovery(Struct, frozen=True):
    """The time from a death to the run's next new work; `load_seconds` of it loaded Python and the code."""

    trial: int
    life: int
    seconds: float
    load_seconds: float
    where: str


class Report(Struct, frozen=True):
    """The result of a campaign."""

    numbers: tuple[Number, ...]
    findings: tuple[Finding, ...]
    recoveries: tuple[MeasuredRecovery, ...]
    kills: int
    faults: int
    runs: int
    settled: int
    replayed: int
    left_out: tuple[str, ...]
    shortened: tuple[str, ...] = ()
    failure: str = ""
    error: str = ""

    @property
    def certain(self) -> list[Finding]:
        """The findings that were observed, without the possible ones."""
        return [one for one in self.findings if one.is_certain]

    @property
    def is_met(self) -> bool:
        """Whether every number meets its target and there is no certain finding."""
        is_judged = bool(self.numbers) and not self.error
        return is_judged and all(one.is_met for one in self.numbers) and not self.certain


def judge(campaign: Campaign, findings: Sequence[Finding]) -> Report:
    """Compare the trials with the calm runs. Without trials there are no numbers."""
    recoveries = [one for trial in campaign.trials for one in recoveries_of(trial)]
    return Report(
        numbers=_numbers(campaign, recoveries) if campaign.trials else (),
        findings=tuple(findings),
        recoveries=tuple(recoveries),
        kills=campaign.kills,
        faults=sum(len(trial.faults) for trial in campaign.trials),
        runs=len(campaign.trials),
        settled=sum(trial.settled for trial in campaign.trials),
        replayed=sum(_replayed(trial) for trial in campaign.trials),
        left_out=tuple(campaign.left_out),
        shortened=tuple(campaign.shortened),
        failure=campaign.failure,
        error=campaign.error,
    )


def _numbers(campaign: Campaign, recoveries: Sequence[MeasuredRecovery]) -> tuple[Number, ...]:
    return (*recovery_times(recoveries), _duplicates(campaign), _consistency(campaign), _recovered(campaign))


# Recovery time --------------------------------------------------------------------------------------


def recoveries_of(trial: Trial) -> list[MeasuredRecovery]:
    """Return the recovery after each death; if the next process was killed too, only the later one counts."""
    found = []
    for fault in trial.faults:
        if fault.kind not in ("KILL", "LOST"):
            continue
        life = fault.data.get("life", fault.life) + 1
        lines = [line for line in trial.lines if line.life == life]
        ready = next((line.at for line in lines if line.what is What.READY), None)
        new = next((line.at for line in lines if line.is_new), None)
        if ready is not None and new is not None:
            found.append(MeasuredRecovery(trial.number, life, new - fault.at, ready - fault.at, fault.step))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def recovery_times(recoveries: Sequence[MeasuredRecovery]) -> tuple[Number, ...]:
    """Return the recovery time without and with loading the code."""
    if not recoveries:
        return (Number("recovery time p99", "none", "at least one", False, "no run continued after a kill"),)
    ours = [one.seconds - one.load_seconds for one in recoveries]
    whole = [one.seconds for one in recoveries]
    return (
        Number(
            "recovery time p99",
            f"{percentile(ours, 0.99):.3f} s",
            f"< {RECOVERY_SECONDS:g} s",
            percentile(ours, 0.99) < RECOVERY_SECONDS,
            f"code loaded to new step; median {percentile(ours, 0.5):.3f} s of {len(ours)}",
            percentile(ours, 0.99),
        ),
        Number(
            "with loading code",
            f"{percentile(whole, 0.99):.3f} s",
            f"< {LOADED_RECOVERY_SECONDS:g} s",
            percentile(whole, 0.99) < LOADED_RECOVERY_SECONDS,
            f"kill to new step, including loading; median {percentile(whole, 0.5):.3f} s",
            percentile(whole, 0.99),
        ),
    )


# Effects --------------------------------------------------------------------------------------------


def _duplicates(campaign: Campaign) -> Number:
    due, extra, again, late = 0, 0, 0, 0
    for trial in campaign.trials:
        more, taken = _extra(campaign, trial)
        due, extra = due + taken, extra + more
        again += len(executed_again(trial))
        late += len(landed_late(trial))
    rate = (extra + again) / max(1, due)
    return Number(
        "duplicate rate",
        f"{rate:.1%}",
        "0",
        extra + again == 0,
        f"{due} effects in {len(campaign.trials)} runs, {extra} more than expected; {again} recorded steps "
        "were executed again"
        + (f" ({late} more were admitted by a worker before it hung, and landed late)" if late else ""),
        rate,
    )


def _extra(campaign: Campaign, trial: Trial) -> tuple[int, int]:
    """Count the effects beyond those of the calm runs, and all effects."""
    extra = sum(more for _, more in surplus(campaign.calm, trial))
    total = sum(counted(same) for same in unsafe_requests(trial).values())
    outside = [
        sum(not one.is_inside and not one.only_asks for one in effects(run))
        for run in (campaign.calm[0], trial)
    ]
    changed = differing_files(campaign.calm, trial)
    return extra + max(0, outside[1] - outside[0]) + len(changed), total + outside[1] + len(trial.changes)


# Consistency ----------------------------------------------------------------------------------------


def _consistency(campaign: Campaign) -> Number:
    kept: list[bool] = []
    results = journals = trees = 0
    for trial in campaign.trials:
        same = has_same_result(campaign.calm, trial), has_same_journal(campaign.calm, trial)
        tree = not differing_files(campaign.calm, trial)
        kept += [*same, tree]
        results, journals, trees = results + same[0], journals + same[1], trees + tree
    runs = len(campaign.trials)
    vague = "" if results_agree(campaign.calm) else " (not compared: it differs even without faults)"
    return Number(
        "consistency",
        f"{sum(kept) / len(kept):.1%}",
        "100%",
        all(kept),
        f"of {runs} runs, {results} had the same result{vague}, {journals} the same steps, {trees} the same "
        "files",
        sum(kept) / len(kept),
    )


def _recovered(campaign: Campaign) -> Number:
    runs, calm = campaign.trials, campaign.calm[0]
    done = sum(trial.state == calm.state for trial in runs)
    settled = sum(trial.settled for trial in runs)
    people = f"; chaos answered {settled} actions in doubt as a person would" if settled else ""
    return Number(
        "recovery rate",
        f"{done / len(runs):.1%}",
        "100%",
        done == len(runs),
        f"{done} of {len(runs)} runs {calm.state}, as without faults{people}",
        done / len(runs),
    )


def _replayed(trial: Trial) -> int:
    """Count replayed steps: at each death, all steps recorded until then."""
    recorded = replayed = 0
    for line in trial.lines:
        recorded += sum(kind in ("result", "failure") for kind, _ in line.records)
        if line.what is What.FAULT and line.kind in ("KILL", "LOST", "TERM"):
            replayed += recorded
    return replayed
