"""What is not crash-safe in the user's code: where it is, what happened, and how to mend it.

Everything here was seen to happen; nothing is guessed from the source alone, which only helps to word it.
One line is one thing to mend, however many steps and runs have shown it.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, structs

from ninelives.chaos import source
from ninelives.chaos.campaign import Campaign
from ninelives.chaos.effects import (
    Declared,
    Effect,
    declarations,
    effects,
    executions,
    names,
    opaque_connections,
    surplus,
)
from ninelives.chaos.ledger import Line, What
from ninelives.chaos.likeness import asked_otherwise, differing_files, repeated_outside
from ninelives.chaos.tree import Content
from ninelives.chaos.trial import Trial
from ninelives.core.errors import NineLivesError
from ninelives.core.keys import step_text

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Requests that change nothing."""


_CHAOS = str(Path(__file__).parent) + os.sep


class ChaosBroken(NineLivesError):
    """Processes of the trials died in code of ours."""


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


def find(campaign: Campaign) -> list[Finding]:
    """Return everything that was found, by file and line. Raises ChaosBroken."""
    for trial in (*campaign.calm, *campaign.trials):
        _check_death(trial)
    merged: dict[tuple[str, int, Mistake], Finding] = {}
    for one in (*_outside(campaign), *_arguments(campaign), *_repeated(campaign), *_values(campaign)):
        place = one.file, one.line, one.mistake
        known = merged.get(place)
        if known is None:
            merged[place] = one
        else:
            first = one if one.is_certain and not known.is_certain else known
            merged[place] = structs.replace(first, times=known.times + one.times)
    return [merged[place] for place in sorted(merged)]


def _check_death(trial: Trial) -> None:
    """Raise ChaosBroken where processes died of our own code: nothing is known of the user's then."""
    if "died by itself" not in trial.why:
        return
    trace = trial.output.rpartition("Traceback (most recent call last):")[2]
    files = [
        file for file in re.findall(r'^ +File "(.+)", line', trace, re.MULTILINE) if not _is_library(file)
    ]
    if files and files[-1].startswith(_CHAOS):
        lines = [line.strip() for line in trace.splitlines() if line.strip(" ^~")]
        raise ChaosBroken(
            f"chaos itself is broken, which says nothing about your agent; {the_run(trial)} ended in "
            f"{' | '.join(lines)}",
            remedy="Please report it with these lines",
        )


def _is_library(file: str) -> bool:
    """Tell whether it is Python's own code, through which ours and the user's may come to grief."""
    return file.startswith((sysconfig.get_path("stdlib") + os.sep, "<")) and "site-packages" not in file


def _finding(
    mistake: Mistake,
    place: str,
    what: str,
    remedy: str,
    *,
    step: str = "",
    times: int = 1,
    is_certain: bool = True,
) -> Finding:
    file, line = source.split(place)
    return Finding(
        mistake=mistake,
        file=file,
        line=line,
        code=source.code(place),
        step=step_text(step) if step else "",
        what=what,
        remedy=remedy,
        times=times,
        is_certain=is_certain,
    )


# Side effects outside of steps, and in clean-up code ------------------------------------------------


def _outside(campaign: Campaign) -> Iterable[Finding]:
    groups: defaultdict[tuple[str, str], list[tuple[Trial, Effect]]] = defaultdict(list)
    for trial in (*campaign.calm, *campaign.trials):
        for effect in effects(trial):
            if not effect.is_inside and effect.place and effect.method not in _SAFE:
                groups[effect.place, effect.kind].append((trial, effect))
    for (place, kind), seen in groups.items():
        times = Counter(trial.number for trial, _ in seen)
        calm = max((times[trial.number] for trial in campaign.calm), default=0)
        worst = max(campaign.trials, key=lambda trial: times[trial.number], default=campaign.calm[0])
        target = _target(seen[0][1])
        often = f"{_times(calm)} without faults, {_times(times[worst.number])} in {the_run(worst)}"
        if any(source.is_cleanup(one) for one in (place, *seen[0][1].stack)):
            yield _finding(
                Mistake.CLEANUP,
                place,
                f"{kind} {target} in clean-up code, outside a step: {often}; it also runs when the run is "
                "only parked or its worker stops, and never when that is killed",
                "Leave it out, or do it in a step after the try; nl.on_failure undoes what was done when a "
                "run fails or is cancelled",
                times=len(seen),
            )
        else:
            yield _finding(
                Mistake.OUTSIDE,
                place,
                f"{kind} {target} outside a step: {often}",
                "Put it into a function decorated with @nl.action, and call that",
                times=len(seen),
            )


def _target(effect: Effect) -> str:
    return effect.target if len(effect.target) <= 100 else f"{effect.target[:100]}…"


def the_run(trial: Trial) -> str:
    """Name a run by what befell it."""
    name = trial.name
    if name.startswith("without"):
        return f"the run {name}"
    return f"the run with the {name}" if name.startswith(("store", "disk")) else f"the run that was {name}"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


# Arguments that change ------------------------------------------------------------------------------


def _arguments(campaign: Campaign) -> Iterable[Finding]:
    diverged = _grouped(campaign, What.DIVERGED)
    for (place, step), seen in diverged.items():
        yield _argument(campaign, place, step, seen[0].text, len(seen))
    known = {step_text(step) for _, step in diverged}
    for trial in campaign.trials:
        for step, (was, now) in asked_otherwise(trial).items():
            declared = declarations(trial).get(names(trial).get(step, ""))
            if step_text(step) not in known and declared is not None:
                is_branch = "/" in step  # where the run waits is not where it was called
                place = declared.place if is_branch else now.place or declared.place
                yield _argument(campaign, place, step, _differing(was, now), 1)
    agent = _agent(campaign)
    for (_, step), seen in _grouped(campaign, What.UNUSED).items():
        place, why = agent, source.suspects(agent)
        blamed = f"; {why[0].text} in line {why[0].line} gives another value in each life" if why else ""
        yield _finding(
            Mistake.ARGUMENT,
            f"{source.split(place)[0]}:{why[0].line}" if why else place,
            f"{step_text(step)} was recorded, and after a crash the code went another way{blamed}",
            "Decide only by arguments and recorded results: nl.now(), nl.random(), a step",
            step=step,
            times=len(seen),
        )
    for (place, step), seen in _grouped(campaign, What.CHANGED).items():
        yield _finding(
            Mistake.ARGUMENT,
            place,
            f"the body of {step} changes its arguments; on replay they stay as they were",
            "Return what is new instead",
            times=len(seen),
        )


def _argument(campaign: Campaign, told: str, step: str, text: str, times: int) -> Finding:
    ordinal = step_text(step).rpartition("[")[2].removesuffix("]")
    place = source.caller(told, _agent(campaign), int(ordinal) if ordinal.isdecimal() else 0)
    why = source.suspects(place)
    blamed = f"; {why[0].text} in line {why[0].line} gives another value in each life" if why else ""
    instead = f"Use {why[0].remedy} there" if why else "Make it from arguments and recorded results alone"
    is_task = place != told and "/" in step
    order = " (it is called as a task, and those are told apart by the order in which they begin)" * is_task
    return _finding(
        Mistake.ARGUMENT,
        place,
        f"{step_text(step)} was asked for with other arguments after a crash: {text}{order}{blamed}",
        f"{instead}: it is the same on replay (or name the argument in ignore= if it does not matter)",
        step=step,
        times=times,
    )


def _differing(was: Line, now: Line) -> str:
    """Say which argument has changed, as far as the first characters show it."""
    old, new = was.data["shown"], now.data["shown"]
    changed = (f"{name}: {old.get(name)} → {value}" for name, value in new.items() if value != old.get(name))
    return next(changed, "they begin alike")


def _agent(campaign: Campaign) -> str:
    lines = (line for trial in campaign.calm for line in trial.lines)
    return next((line.place for line in lines if line.what is What.READY), "")


def _grouped(campaign: Campaign, what: What) -> dict[tuple[str, str], list[Line]]:
    groups: defaultdict[tuple[str, str], list[Line]] = defaultdict(list)
    for trial in (*campaign.calm, *campaign.trials):
        for line in trial.lines:
            if line.what is what:
                groups[line.place, line.step].append(line)
    return dict(groups)


# Effects that were repeated -------------------------------------------------------------------------


def _repeated(campaign: Campaign) -> Iterable[Finding]:
    found: dict[str, Finding] = {}
    # What had other arguments when it was executed again has another mistake, which is told of already.
    diverged = {step_text(step) for _, step in _grouped(campaign, What.DIVERGED)}
    diverged |= {step_text(step) for trial in campaign.trials for step in asked_otherwise(trial)}
    for trial in campaign.trials:
        for look in (_requests, _files, _outside_files, _databases, _opaque):
            for finding in look(campaign, trial):
                place = f"{finding.file}:{finding.line}"
                is_better = finding.is_certain and place in found and not found[place].is_certain
                if finding.step not in diverged and (place not in found or is_better):
                    found[place] = finding
    return found.values()


def _requests(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    declared, named = declarations(trial), names(trial)
    for same, _ in surplus(campaign.calm, trial):
        first = next((one for one in same if not one.is_keyed), same[0])
        here = [one for one in same if one.place == first.place and not one.is_keyed]
        step = named.get(first.step, "")
        is_new = len({tuple(one.digests[1:] or one.digests) for one in here}) > 1
        anew = ", each time with something else in it (a key that is made anew is none)" if is_new else ""
        what = (
            f"{first.target} was sent {_times(len(here))}, without the action's key{anew}: its receiver "
            "cannot tell that it is the same"
        )
        yield _twice(first, what, step, declared.get(step), trial)


def _opaque(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    calm = opaque_connections(campaign.calm[0])
    for (step, target), seen in opaque_connections(trial).items():
        if len(seen) > len(calm.get((step, target), seen[:1])):
            yield _finding(
                Mistake.REPEATED,
                seen[0].place,
                f"{step_text(step)} connected to {target} {_times(len(seen))}, and never asked for its key; "
                f"what it said there is not seen from outside; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it acts, pass nl.key() along",
                step=step,
                is_certain=False,
            )


def _files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find the steps that left a file otherwise than without faults, having been executed more than once."""
    calm = campaign.calm[0]
    declared, named, begun = declarations(trial), names(trial), executions(trial)
    usual = executions(calm)
    for path in differing_files(campaign.calm, trial):
        writers = [
            one for one in _writers(trial, path) if one.is_inside and begun[one.step] > usual[one.step]
        ]
        if not writers:
            continue
        writer = writers[0]
        lines = _compared(calm.changes.get(path), trial.changes.get(path))
        yield _twice(
            writer,
            f"{path} was written by {begun[writer.step]} executions and is not what it would be ({lines})",
            named[writer.step],
            declared.get(named[writer.step]),
            trial,
        )


def _outside_files(campaign: Campaign, trial: Trial) -> Iterable[Finding]:
    """Find the steps that changed a file of all runs once more when they were executed once more."""
    declared, named = declarations(trial), names(trial)
    for one in repeated_outside(campaign.calm, trial):
        line = one.line
        step = named.get(line.step, "")
        done = "appended to" if one.is_appended else "changed"
        doubt = "" if one.is_certain else "; whether that does harm cannot be told from outside"
        what = f"{line.target}, which is outside the tree, was {done} in {one.lives} lives{doubt}"
        effect = Effect(line.kind, line.target, line.place, line.step, line.life, line.at, line.is_inside)
        finding = _twice(effect, what, step, declared.get(step), trial)
        yield structs.replace(finding, is_certain=one.is_certain)


def _databases(campaign: Campaign, trial: Trial) -> Iterable[Finding]:  # noqa: ARG001
    """Find the actions that opened a database of all runs more than once, and nobody saw what they did."""
    declared, named = declarations(trial), names(trial)
    asked = {line.step for line in trial.lines if line.what is What.KEY}
    opened: defaultdict[tuple[str, str], dict[int, Line]] = defaultdict(dict)
    for line in trial.lines:
        if line.what is What.TOUCH and line.data.get("is_outside"):
            opened[line.step, line.target].setdefault(line.life, line)
    for (step, target), lives in opened.items():
        known = declared.get(named.get(step, ""))
        is_known = known is None or known.is_question or known.is_transactional
        if len(lives) > 1 and step not in asked and not is_known:
            yield _finding(
                Mistake.REPEATED,
                next(iter(lives.values())).place,
                f"{step_text(step)} opened {target}, which is outside the tree, in {len(lives)} lives, and "
                f"never asked for its key; what it did there is not seen; in {the_run(trial)}",
                "If it only reads, declare it reads_only=True; if it acts, let it do the same when it does "
                "it again (upsert, or by nl.key())",
                step=step,
                is_certain=False,
            )


def _compared(was: Content | None, now: Content | None) -> str:
    if was is None or now is None:
        return "without faults there is none" if was is None else "now there is none"
    if was.lines == now.lines:
        return "something else is in it"
    return f"{was.lines} lines without faults, {now.lines} now"


def _writers(trial: Trial, path: str) -> list[Effect]:
    """Return what may have written a file: whoever opened it, else whoever started another program."""
    seen = effects(trial)
    touched = [
        Effect(line.kind, line.target, line.place, line.step, line.life, line.at, line.is_inside)
        for line in trial.lines
        if line.what is What.TOUCH and line.kind == "database"
    ]
    exact = [one for one in (*seen, *touched) if one.target.endswith(f"/{path}")]
    return exact or [one for one in seen if one.kind == "command"]


def _twice(effect: Effect, what: str, step: str, declared: Declared | None, trial: Trial) -> Finding:
    how = f"{what}; in {the_run(trial)}"
    if declared is not None and not declared.is_resumable:
        remedy = f"It said of {step} that it had not happened; let it find what was done, by its key"
        return _finding(Mistake.VERIFY, effect.place, how, remedy, step=effect.step)
    remedy = (
        "Pass nl.key() along, as Idempotency-Key or however the receiver knows it; or make the body say "
        "the same when it says it again (write the whole file, upsert); or declare it resumable=False, "
        "with verify="
    )
    return _finding(Mistake.REPEATED, effect.place, how, remedy, step=effect.step)


# Values ---------------------------------------------------------------------------------------------


def _values(campaign: Campaign) -> Iterable[Finding]:
    for (place, step), lines in _grouped(campaign, What.MISFIT).items():
        yield _finding(
            Mistake.VALUE,
            source.return_line(place),
            f"the {lines[0].kind} that {step_text(step)} returns does not survive: {lines[0].text}",
            "Return what can be stored: dataclasses, msgspec or pydantic models, enums, plain containers; "
            "and annotate it",
            step=step,
            times=len(lines),
        )
