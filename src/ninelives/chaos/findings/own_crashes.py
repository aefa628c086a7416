"""Processes of the trials that died of our own code: nothing is known of the user's then."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from ninelives.chaos.findings.finding import the_run
from ninelives.chaos.trial.trial import Trial
from ninelives.core.errors import NineLivesError

_CHAOS = str(Path(__file__).parents[1]) + os.sep


class ChaosBroken(NineLivesError):
    """Processes of the trials died in code of ours."""


def check(trial: Trial) -> None:
    """Raise ChaosBroken where processes of a run died of our own code."""
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
