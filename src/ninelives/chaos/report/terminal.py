"""What a person sees: a progress bar on a terminal, plain lines in a log, and the report at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ninelives.chaos.campaign.campaign import Campaign, Told
from ninelives.chaos.findings.finding import Finding, the_run
from ninelives.chaos.findings.metrics import Report
from ninelives.demo.screen import show_numbers
from ninelives.views.escape import shown


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


def conclude(console: Console, verdict: Report, campaign: Campaign) -> None:
    """Print the numbers, what is to be mended, and one last line."""
    if verdict.numbers:
        show_numbers(console, verdict.numbers)
    if verdict.error:
        _say(console, shown(verdict.error), "red")
    if verdict.failure:
        _say(
            console,
            shown(f"it fails without faults, too, and that is taken for its right end: {verdict.failure}"),
            "yellow",
        )
    for number, finding in enumerate(verdict.findings, 1):
        _show(console, number, finding)
    for line in unended(campaign):
        _say(console, line, "red")
    for name in dict.fromkeys(verdict.shortened):
        _say(console, f"shortened, for want of time: {name}", "dim")
    for name in dict.fromkeys(verdict.left_out):
        _say(console, f"left out, for the time was over: {name}", "yellow")
    _tell_counts(console, verdict)
    style = "bold red" if not verdict.is_met else "bold yellow" if verdict.left_out else "bold green"
    _say(console, last_line(verdict, campaign.seconds), style)


def unended(campaign: Campaign) -> list[str]:
    """Say which runs did not end, and why: each reason once."""
    by_reason: dict[str, list[str]] = {}
    for trial in campaign.trials:
        if trial.why:
            by_reason.setdefault(trial.why, []).append(the_run(trial))
    told = []
    for why, runs in by_reason.items():
        others = f", and {len(runs) - 1} more," if len(runs) > 1 else ""
        told.append(f"{runs[0]}{others} did not end: {why}")
    return told


def _tell_counts(console: Console, verdict: Report) -> None:
    if not verdict.runs:
        return
    _say(
        console,
        f"{verdict.runs} runs, {verdict.faults} faults, {verdict.kills} of them kill -9; "
        f"{verdict.replayed} times a recorded step was replayed instead of executed.",
    )


def last_line(verdict: Report, seconds: float) -> str:
    """Say it in one line."""
    missed = ", ".join(one.name for one in verdict.numbers if not one.is_met)
    parts = [f"missed: {missed}"] if missed else [] if verdict.numbers else ["it could not be tried"]
    parts += [f"{len(verdict.certain)} to mend"] if verdict.certain else []
    if parts:
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}. ({seconds:.1f} s){_incomplete(verdict)}"
    doubts = len(verdict.findings)
    rest = f"{doubts} to look at" if doubts else "nothing to mend"
    if verdict.left_out:
        met = f"Not all was tried: targets met as far as it went, {rest}, in {seconds:.1f} s."
        return f"{met}{_incomplete(verdict)}"
    return f"All targets met, {rest}, in {seconds:.1f} s."


def _incomplete(verdict: Report) -> str:
    """Say that kinds of fault were never tried."""
    left = len(set(verdict.left_out))
    kinds = "1 kind of fault was" if left == 1 else f"{left} kinds of fault were"
    return f" {kinds} left out: more --seconds would try them." if left else ""


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
