"""Detect trials whose processes crashed in chaos's own code: such a trial says nothing about the agent."""

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
    """Processes of a trial crashed in chaos's own code."""


def check(trial: Trial) -> None:
    """Raise ChaosBroken if the processes of a trial crashed in chaos's own code."""
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
