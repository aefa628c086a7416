"""Compare a trial with the calm runs: its result, its steps, the files it left.

Whatever differs between the calm runs themselves (a model's words, a time of day) is ignored. Files outside
the tree are shared by all runs, so for those we compare what each execution of a step did to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial


def is_alike(calm: Sequence[Trial], trial: Trial) -> bool:
    """Return whether a trial has the same result, steps and files as the calm runs."""
    return has_same_result(calm, trial) and has_same_journal(calm, trial) and not differing_files(calm, trial)


def results_agree(calm: Sequence[Trial]) -> bool:
    """Return whether all calm runs have the same result."""
    return len({(run.result, run.error) for run in calm}) == 1


def has_same_result(calm: Sequence[Trial], trial: Trial) -> bool:
    """Compare final state and result; the result only if the calm runs agree on it."""
    if trial.state != calm[0].state:
        return False
    return not results_agree(calm) or (trial.result, trial.error) == (calm[0].result, calm[0].error)


def has_same_journal(calm: Sequence[Trial], trial: Trial) -> bool:
    """Compare the outcomes of all steps; of steps that differ between calm runs, only their presence."""
    first, *others = (_steps(run) for run in calm)
    if any(other.keys() != first.keys() for other in others):
        return trial.has_ended
    tried = _steps(trial)
    fixed = {step for step, outcome in first.items() if all(other[step] == outcome for other in others)}
    return tried.keys() == first.keys() and all(tried[step] == first[step] for step in fixed)


def _steps(trial: Trial) -> dict[tuple[int, str], tuple[str, str, str]]:
    return {(turn, step): (kind, digest, value) for turn, kind, step, digest, value in trial.journal}


def called_differently(trial: Trial) -> dict[str, tuple[LedgerLine, LedgerLine]]:
    """Return the steps that were executed again with other arguments, with both calls.

    Replay cannot refuse these: the first execution left no record.
    """
    first: dict[tuple[str, int], LedgerLine] = {}
    found: dict[str, tuple[LedgerLine, LedgerLine]] = {}
    for line in trial.lines:
        if line.what is What.TOUCH and line.kind == "asked":
            known = first.setdefault((line.step, line.data["turn"]), line)
            if known.data["asked"] != line.data["asked"]:
                found.setdefault(line.step, (known, line))
    return found


def differing_files(calm: Sequence[Trial], trial: Trial) -> list[str]:
    """Return the files that differ from the calm runs, ignoring files on which those disagree.

    Names that are new in each run (a time, a random word) are only counted.
    """
    first, *others = calm
    known = {path for run in calm for path in run.changes}
    fixed = [
        path for path in known if all(run.changes.get(path) == first.changes.get(path) for run in others)
    ]
    new = sorted(trial.changes.keys() - known)
    loose = max(len(run.changes.keys() - _everywhere(calm)) for run in calm)
    changed = [path for path in fixed if trial.changes.get(path) != first.changes[path]]
    return sorted(changed + new[loose:])


def _everywhere(calm: Sequence[Trial]) -> set[str]:
    return set.intersection(*(set(run.changes) for run in calm))


# Files outside the tree -----------------------------------------------------------------------------


class StepVisit(Struct):
    """What the executions of a step in one process did to a file: its state before and after."""

    line: LedgerLine
    before: str
    after: str | None
    is_appended: bool
    is_exclusive: bool
    """Whether no other body ran at the same time that could have changed the file."""


class Repeated(Struct, frozen=True):
    """A file outside the tree that a step changed in more than one process."""

    line: LedgerLine
    lives: int
    is_appended: bool
    is_certain: bool


def repeated_outside(calm: Sequence[Trial], trial: Trial) -> Iterator[Repeated]:
    """Yield the files that one execution of a step changed and a later one changed again."""
    usual = [_visits(run) for run in calm]
    found = _visits(trial)
    for (step, path), visits in found.items():
        changing = [one for one in visits if one.before != one.after]
        if len(changing) < 2:
            continue
        is_shared = any(other == path and writer != step for writer, other in found)
        is_certain = not is_shared or all(one.is_exclusive for one in changing)
        is_appended = all(one.is_appended for one in changing)
        if not is_appended:  # written as a whole: only the final content counts
            left = {run[step, path][-1].after for run in usual if (step, path) in run}
            if left == {changing[-1].after}:
                continue
            is_certain = is_certain and len(left) == 1
        yield Repeated(changing[0].line, len(changing), is_appended, is_certain)


def _visits(trial: Trial) -> dict[tuple[str, str], list[StepVisit]]:
    """Return what steps did to files outside the tree, process by process."""
    found: defaultdict[tuple[str, str], dict[int, StepVisit]] = defaultdict(dict)
    for line in trial.lines:
        lives, data = found[line.step, line.target] if _is_visit(line) else {}, line.data
        if "before" in data and line.life not in lives:
            lives[line.life] = StepVisit(line, data["before"], None, True, data["is_exclusive"])
        if "before" in data:
            lives[line.life].is_appended &= "is_appended" in data
        elif line.life in lives:
            lives[line.life].after = data["state"]
            lives[line.life].is_exclusive &= data["is_exclusive"]
    return {group: _in_order(lives) for group, lives in found.items()}


def _is_visit(line: LedgerLine) -> bool:
    return "before" in line.data or (line.what is What.TOUCH and line.kind == "left")


def _in_order(lives: dict[int, StepVisit]) -> list[StepVisit]:
    """Order the visits. A killed process left the file as the next process found it."""
    visits = [lives[life] for life in sorted(lives)]
    for visit, following in zip(visits, [*visits[1:], None], strict=True):
        if visit.after is None:
            visit.after = visit.before if following is None else following.before
    return visits
