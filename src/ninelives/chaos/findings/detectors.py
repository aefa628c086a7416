"""Find what is not crash-safe in the user's code: where it is, what happened, and how to fix it.

Every finding was observed in a trial. The source code only helps to word it; nothing is inferred from it.
One line of code gives one finding per mistake, however many steps and runs showed it.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import structs

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.campaign.comparison import called_differently
from ninelives.chaos.findings import source_code
from ninelives.chaos.findings.effects import Effect, declarations, effects
from ninelives.chaos.findings.finding import Finding, Mistake, finding, grouped, the_run, times
from ninelives.chaos.findings.repeated_effects import repeated
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial
from ninelives.core.errors import NineLivesError
from ninelives.core.step_ids import step_text

_CHAOS = str(Path(__file__).parents[1]) + os.sep


class ChaosBroken(NineLivesError):
    """Processes of a trial crashed in chaos's own code."""


def find(campaign: Campaign) -> list[Finding]:
    """Return all findings, sorted by file and line. Raises ChaosBroken."""
    for trial in (*campaign.calm, *campaign.trials):
        _check(trial)
    merged: dict[tuple[str, int, Mistake], Finding] = {}
    for one in (*_outside(campaign), *_arguments(campaign), *repeated(campaign), *_values(campaign)):
        same = one.file, one.line, one.mistake
        known = merged.get(same)
        if known is None:
            merged[same] = one
        else:
            first = one if one.is_certain and not known.is_certain else known
            merged[same] = structs.replace(first, times=known.times + one.times)
    return [merged[same] for same in sorted(merged)]


# Side effects outside of steps, and in clean-up code ------------------------------------------------


def _outside(campaign: Campaign) -> Iterable[Finding]:
    groups: defaultdict[tuple[str, str], list[tuple[Trial, Effect]]] = defaultdict(list)
    for trial in (*campaign.calm, *campaign.trials):
        for effect in effects(trial):
            if not effect.is_inside and effect.location and not effect.only_asks:
                groups[effect.location, effect.kind].append((trial, effect))
    for (location, kind), seen in groups.items():
        counted = Counter(trial.number for trial, _ in seen)
        calm = max((counted[trial.number] for trial in campaign.calm), default=0)
        worst = max(campaign.trials, key=lambda trial: counted[trial.number], default=campaign.calm[0])
        target = _target(seen[0][1])
        often = f"{times(calm)} without faults, {times(counted[worst.number])} in {the_run(worst)}"
        if any(source_code.is_cleanup(one) for one in (location, *seen[0][1].stack)):
            yield finding(
                Mistake.CLEANUP,
                location,
                f"{kind} {target} in clean-up code, outside a step: {often}; such code also runs when the "
                "run is only parked or its worker stops, and never when the worker is killed",
                "Remove it, or move it into a step after the try block; to undo actions when a run fails or "
                "is cancelled, use nl.on_failure",
                times=len(seen),
            )
        else:
            yield finding(
                Mistake.OUTSIDE,
                location,
                f"{kind} {target} outside a step: {often}",
                "Move it into a function decorated with @nl.action, and call that function",
                times=len(seen),
            )


def _target(effect: Effect) -> str:
    return effect.target if len(effect.target) <= 100 else f"{effect.target[:100]}…"


# Arguments that change ------------------------------------------------------------------------------


def _arguments(campaign: Campaign) -> Iterable[Finding]:
    diverged = grouped(campaign, What.DIVERGED)
    for (location, step), seen in diverged.items():
        yield _argument(campaign, location, step, seen[0].text, len(seen))
    known = {step_text(step) for _, step in diverged}
    for trial in campaign.trials:
        for step, (was, now) in called_differently(trial).items():
            declared = declarations(trial).get(step)
            if step_text(step) not in known and declared is not None:
                is_branch = "/" in step  # then the line where the run waits is not the line of the call
                location = declared.location if is_branch else now.location or declared.location
                yield _argument(campaign, location, step, _differing(was, now), 1)
    agent = _agent(campaign)
    for (_, step), seen in grouped(campaign, What.UNUSED).items():
        location, why = agent, source_code.suspects(agent)
        yield finding(
            Mistake.ARGUMENT,
            f"{source_code.split(location)[0]}:{why[0].line}" if why else location,
            f"{step_text(step)} was recorded, but after a crash the code took another path{_cause(why)}",
            "Branch only on arguments and recorded results: nl.now(), nl.random(), a step",
            step=step,
            times=len(seen),
        )
    for (location, step), seen in grouped(campaign, What.CHANGED).items():
        yield finding(
            Mistake.ARGUMENT,
            location,
            f"the body of {step} changes its arguments; on replay they stay unchanged",
            "Return the new value instead",
            times=len(seen),
        )


def _argument(campaign: Campaign, seen_at: str, step: str, text: str, times: int) -> Finding:
    ordinal = step_text(step).rpartition("[")[2].removesuffix("]")
    location = source_code.caller(seen_at, _agent(campaign), int(ordinal) if ordinal.isdecimal() else 0)
    why = source_code.suspects(location)
    instead = f"Use {why[0].remedy} there" if why else "Compute it only from arguments and recorded results"
    is_task = location != seen_at and "/" in step
    order = " (it is called as a task, and tasks are identified by the order in which they start)" * is_task
    return finding(
        Mistake.ARGUMENT,
        location,
        f"{step_text(step)} was called with other arguments after a crash: {text}{order}{_cause(why)}",
        f"{instead}, so that it is the same on replay (or put the argument into ignore= if it may differ)",
        step=step,
        times=times,
    )


def _cause(suspects: Sequence[source_code.Suspect]) -> str:
    """Name the expression that most likely caused the difference; empty if none is known."""
    if not suspects:
        return ""
    return f"; {suspects[0].text} in line {suspects[0].line} gives a different value in each process"


def _differing(was: LedgerLine, now: LedgerLine) -> str:
    """Return which argument changed, as far as the recorded previews show it."""
    old, new = was.data["shown"], now.data["shown"]
    changed = (f"{name}: {old.get(name)} → {value}" for name, value in new.items() if value != old.get(name))
    return next(changed, "they differ after their first characters")


def _agent(campaign: Campaign) -> str:
    lines = (line for trial in campaign.calm for line in trial.lines)
    return next((line.location for line in lines if line.what is What.READY), "")


# Values ---------------------------------------------------------------------------------------------


def _values(campaign: Campaign) -> Iterable[Finding]:
    for (location, step), lines in grouped(campaign, What.MISFIT).items():
        yield finding(
            Mistake.VALUE,
            source_code.return_line(location),
            f"the {lines[0].kind} that {step_text(step)} returns changes when it is stored: {lines[0].text}",
            "Return a type that can be stored (dataclass, msgspec or pydantic model, enum, plain container) "
            "and annotate it",
            step=step,
            times=len(lines),
        )


# Crashes of chaos itself ------------------------------------------------------------------------------


def _check(trial: Trial) -> None:
    """Raise ChaosBroken if the processes of a trial crashed in chaos: that says nothing about the agent."""
    if "died by itself" not in trial.why:
        return
    trace = trial.output.rpartition("Traceback (most recent call last):")[2]
    files = [
        file for file in re.findall(r'^ +File "(.+)", line', trace, re.MULTILINE) if not _is_library(file)
    ]
    if files and files[-1].startswith(_CHAOS):
        lines = [line.strip() for line in trace.splitlines() if line.strip(" ^~")]
        raise ChaosBroken(
            f"chaos itself crashed, which says nothing about your agent; {the_run(trial)} ended in "
            f"{' | '.join(lines)}",
            remedy="Please report this bug with these lines",
        )


def _is_library(file: str) -> bool:
    """Return whether a file is part of Python: its frames do not show whose code caused the error."""
    return file.startswith((sysconfig.get_path("stdlib") + os.sep, "<")) and "site-packages" not in file
