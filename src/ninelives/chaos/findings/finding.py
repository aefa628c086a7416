"""One thing to mend, and the words in which all of them are told."""

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
    """The classes of what can be wrong."""

    OUTSIDE = "a side effect outside a step"
    ARGUMENT = "a non-deterministic argument"
    REPEATED = 'a non-idempotent "resumable" action'
    VERIFY = "a verify= that was wrong"
    VALUE = "a value that does not survive the codec"
    CLEANUP = "clean-up code that acts"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing to mend."""

    mistake: Mistake
    file: str
    line: int
    code: str
    step: str = ""
    what: str
    remedy: str
    times: int = 1
    is_certain: bool = True
    """Whether it was seen; else it may be so, and nobody could see it."""


def finding(
    mistake: Mistake,
    place: str,
    what: str,
    remedy: str,
    *,
    step: str = "",
    times: int = 1,
    is_certain: bool = True,
) -> Finding:
    """Return what is to be mended at a place."""
    file, line = source_code.split(place)
    return Finding(
        mistake=mistake,
        file=file,
        line=line,
        code=source_code.code(place),
        step=step_text(step) if step else "",
        what=what,
        remedy=remedy,
        times=times,
        is_certain=is_certain,
    )


def the_run(trial: Trial) -> str:
    """Name a run by what befell it."""
    name = trial.name
    if name.startswith("without"):
        return f"the run {name}"
    return f"the run with the {name}" if name.startswith(("store", "disk")) else f"the run that was {name}"


def times(count: int) -> str:
    """Say how often."""
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def grouped(campaign: Campaign, what: What) -> dict[tuple[str, str], list[LedgerLine]]:
    """Return what was noted of a kind in all runs, by place and step."""
    groups: defaultdict[tuple[str, str], list[LedgerLine]] = defaultdict(list)
    for trial in (*campaign.calm, *campaign.trials):
        for line in trial.lines:
            if line.what is what:
                groups[line.place, line.step].append(line)
    return dict(groups)
