"""Whether a run came to what it comes to without faults: its result, its steps, the files it left.

What differs between the runs without faults (a model's words, a time of day) is held against no run.
"""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.chaos.trial import Trial


def is_alike(calm: Sequence[Trial], trial: Trial) -> bool:
    """Tell whether a run is in nothing other than those without faults."""
    return has_same_result(calm, trial) and has_same_journal(calm, trial) and not differing_files(calm, trial)


def results_agree(calm: Sequence[Trial]) -> bool:
    """Tell whether the result is the same each time without faults."""
    return len({(run.result, run.error) for run in calm}) == 1


def has_same_result(calm: Sequence[Trial], trial: Trial) -> bool:
    """Compare how a run has ended, and with what."""
    if trial.state != calm[0].state:
        return False
    return not results_agree(calm) or (trial.result, trial.error) == (calm[0].result, calm[0].error)


def has_same_journal(calm: Sequence[Trial], trial: Trial) -> bool:
    """Compare the outcomes of all steps; where they differ without faults, only that they are there."""
    first, *others = (_steps(run) for run in calm)
    if any(other.keys() != first.keys() for other in others):
        return trial.has_ended
    tried = _steps(trial)
    fixed = {step for step, outcome in first.items() if all(other[step] == outcome for other in others)}
    return tried.keys() == first.keys() and all(tried[step] == first[step] for step in fixed)


def _steps(trial: Trial) -> dict[tuple[int, str], tuple[str, str, str]]:
    return {(turn, step): (kind, asked, value) for turn, kind, step, asked, value in trial.journal}


def differing_files(calm: Sequence[Trial], trial: Trial) -> list[str]:
    """Return the files that are not as without faults, of those that are the same each time without.

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
