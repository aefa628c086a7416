"""What a person sees: a progress bar on a terminal, plain lines in a log, and the report at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ninelives.chaos.campaign import Campaign, Told
from ninelives.chaos.findings import Finding
from ninelives.chaos.judge import Verdict
from ninelives.chaos.trial import Trial
from ninelives.demo.screen import show_numbers
from ninelives.ops.escape import shown


@contextmanager
def watching(console: Console) -> Iterator[Told]:
    """Show how far the trials are."""
    if not console.is_terminal:
        since = time.monotonic()
        yield lambda name, done, of: console.print(
            f"{time.monotonic() - since:6.2f} s  {done + 1} of {of}: {name}",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
        return
    columns = (BarColumn(30), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def told(name: str, done: int, of: int) -> None:
            progress.update(task, description=shown(name), completed=done, total=of)

        yield told


def conclude(console: Console, verdict: Verdict, campaign: Campaign) -> None:
    """Print the numbers, what is to be mended, and one last line."""
    if verdict.numbers:
        show_numbers(console, verdict.numbers)
    else:
        _say(console, f"already without faults the run failed: {_told(campaign.calm[-1])}", "red")
    for number, finding in enumerate(verdict.findings, 1):
        _show(console, number, finding)
    for trial in campaign.trials:
        if trial.why:
            _say(console, f"the run that was {trial.name} did not end: {trial.why}", "red")
    for name in dict.fromkeys(verdict.left_out):
        _say(console, f"left out, for the time was over: {name}", "yellow")
    _tell_counts(console, verdict)
    _say(console, last_line(verdict, campaign.seconds), "bold green" if verdict.is_met else "bold red")


def _tell_counts(console: Console, verdict: Verdict) -> None:
    if not verdict.runs:
        return
    _say(
        console,
        f"{verdict.runs} runs, {verdict.faults} faults, {verdict.kills} of them kill -9; "
        f"{verdict.replayed} times a recorded step was replayed instead of executed.",
    )


def _told(trial: Trial) -> str:
    """Say what error a run ended with."""
    error: dict[str, Any] = msgspec.json.decode(trial.error)
    return shown(f"{error.get('name')}: {error.get('message')}")


def last_line(verdict: Verdict, seconds: float) -> str:
    """Say it in one line."""
    missed = ", ".join(one.name for one in verdict.numbers if not one.is_met)
    parts = [f"missed: {missed}"] if missed else [] if verdict.numbers else ["it fails without faults"]
    parts += [f"{len(verdict.certain)} to mend"] if verdict.certain else []
    if parts:
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}. ({seconds:.1f} s)"
    doubts = len(verdict.findings)
    rest = f"{doubts} to look at" if doubts else "nothing to mend"
    left = len(set(verdict.left_out))
    more = f" {left} kinds of fault were left out: more --seconds would try them." if left else ""
    return f"All targets met, {rest}, in {seconds:.1f} s.{more}"


def place(finding: Finding) -> str:
    """Name the place as one would open it from here."""
    path = Path(finding.file)
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{finding.line}".replace(
        os.sep, "/"
    )


def _show(console: Console, number: int, finding: Finding) -> None:
    console.print()
    head = Text(f"{number}. {shown(place(finding))}  ", style="bold")
    head.append(f"{finding.mistake}{'' if finding.is_certain else ' (perhaps)'}", style="bold yellow")
    console.print(head, soft_wrap=True)
    if finding.code:
        _say(console, f"     {shown(finding.code)}", "dim")
    _say(console, f"   what: {shown(finding.what)}")
    _say(console, f"   mend: {shown(finding.remedy)}")


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)
