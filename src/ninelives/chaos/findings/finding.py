"""A finding: one problem in the user's code; and the phrases that all findings share."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum

from msgspec import Struct

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings import source_code
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial
from ninelives.core.step_ids import step_text


class Mistake(StrEnum):
    """The kinds of mistakes that chaos finds."""

    OUTSIDE = "a side effect outside a step"
    ARGUMENT = "a non-deterministic argument"
    REPEATED = 'a non-idempotent "resumable" action'
    VERIFY = "a verify= that was wrong"
    VALUE = "a value that does not survive the codec"
    CLEANUP = "clean-up code that acts"


class Finding(Struct, frozen=True, kw_only=True):
    """One problem at one line: what happened, and how to fix it."""

    mistake: Mistake
    file: str
    line: int
    code: str
    step: str = ""
    what: str
    remedy: str
    times: int = 1
    is_certain: bool = True
    """Whether the harm was observed; if not, it is possible but not visible from outside."""


def finding(
    mistake: Mistake,
    location: str,
    what: str,
    remedy: str,
    *,
    step: str = "",
    times: int = 1,
    is_certain: bool = True,
) -> Finding:
    """Make a finding at FILE:LINE."""
    file, line = source_code.split(location)
    return Finding(
        mistake=mistake,
        file=file,
        line=line,
        code=source_code.code(location),
        step=step_text(step) if step else "",
        what=what,
        remedy=remedy,
        times=times,
        is_certain=is_certain,
    )


def the_run(trial: Trial) -> str:
    """Return a phrase that names a run by its scenario."""
    name = trial.name
    if name.startswith("without"):
        return f"the run {name}"
    if name.startswith("hung"):
        return f"the run that {name}"
    return f"the run with the {name}" if name.startswith(("store", "disk")) else f"the run that was {name}"


def times(count: int) -> str:
    """Return a count in words: never, once, 3 times."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def grouped(campaign: Campaign, what: What) -> dict[tuple[str, str], list[LedgerLine]]:
    """Return the ledger lines of one kind from all runs, grouped by FILE:LINE and step."""
    groups: defaultdict[tuple[str, str], list[LedgerLine]] = defaultdict(list)
    for trial in (*campaign.calm, *campaign.trials):
        for line in trial.lines:
            if line.what is what:
                groups[line.location, line.step].append(line)
    return dict(groups)
