"""Show progress (a bar on a terminal, plain lines in a log) and print the report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ninelives.chaos.campaign.campaign import Campaign, Progress
from ninelives.chaos.findings.finding import Finding, the_run
from ninelives.chaos.findings.metrics import Number, Report
from ninelives.views.escape import shown

NARROW = 76
"""Below this width a table would cut off the numbers."""


@contextmanager
def watching(console: Console) -> Iterator[Progress]:
    """Show which trial runs now, and how many are done."""
    if not console.is_terminal:
        since = time.monotonic()
        yield lambda name, done, of: console.print(
            f"{time.monotonic() - since:6.2f} s  {done + 1} of {of}: {name}",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
        return
    columns = (
        bars.BarColumn(30),
        bars.TextColumn("{task.completed}/{task.total}"),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}"),
    )
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, of: bar.update(task, description=shown(name), completed=done, total=of)


def conclude(console: Console, verdict: Report, campaign: Campaign) -> None:
    """Print the numbers, the findings, what was skipped, and a one-line summary."""
    if verdict.numbers:
        show_numbers(console, verdict.numbers)
    if verdict.error:
        _say(console, shown(verdict.error), "red")
    if verdict.failure:
        _say(
            console,
            shown(f"the run fails without faults too, so failing is its expected result: {verdict.failure}"),
            "yellow",
        )
    for number, finding in enumerate(verdict.findings, 1):
        _show(console, number, finding)
    for line in unended(campaign):
        _say(console, line, "red")
    for name in dict.fromkeys(verdict.shortened):
        _say(console, f"shortened to fit --seconds: {name}", "dim")
    for name in dict.fromkeys(verdict.left_out):
        _say(console, f"left out, out of time: {name}", "yellow")
    _say_counts(console, verdict)
    style = "bold red" if not verdict.is_met else "bold yellow" if verdict.left_out else "bold green"
    _say(console, last_line(verdict, campaign.seconds), style)


def show_numbers(console: Console, numbers: Sequence[Number]) -> None:
    """Print numbers with their targets: a table on a wide terminal, otherwise one line each."""
    console.print()
    if console.is_terminal and console.width >= NARROW:
        table = Table(title="Results", title_justify="left")
        for name in ("number", "measured", "target", "", "details"):
            table.add_column(name, no_wrap=name != "details")
        for one in numbers:
            mark = Text("met", style="green") if one.is_met else Text("MISSED", style="bold red")
            table.add_row(one.name, one.value, one.target, mark, one.note)
        console.print(table)
        return
    for one in numbers:
        met = "met" if one.is_met else "MISSED"
        line = f"{one.name:20} {one.value:>8}  target {one.target:7} {met:7} {one.note}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def unended(campaign: Campaign) -> list[str]:
    """Return one line for each reason why runs did not end."""
    by_reason: dict[str, list[str]] = {}
    for trial in campaign.trials:
        if trial.why:
            by_reason.setdefault(trial.why, []).append(the_run(trial))
    lines = []
    for why, runs in by_reason.items():
        others = f", and {len(runs) - 1} more," if len(runs) > 1 else ""
        lines.append(f"{runs[0]}{others} did not end: {why}")
    return lines


def _say_counts(console: Console, verdict: Report) -> None:
    if not verdict.runs:
        return
    _say(
        console,
        f"{verdict.runs} runs, {verdict.faults} faults, {verdict.kills} of them kill -9; "
        f"recorded steps were replayed instead of executed {verdict.replayed} times.",
    )


def last_line(verdict: Report, seconds: float) -> str:
    """Summarise the report in one line."""
    missed = ", ".join(one.name for one in verdict.numbers if not one.is_met)
    parts = [f"missed: {missed}"] if missed else [] if verdict.numbers else ["no faults could be injected"]
    parts += [f"{len(verdict.certain)} to fix"] if verdict.certain else []
    if parts:
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}. ({seconds:.1f} s){_incomplete(verdict)}"
    doubts = len(verdict.findings)
    rest = f"{doubts} to check" if doubts else "nothing to fix"
    if verdict.left_out:
        met = f"Incomplete: all targets met so far, {rest}, in {seconds:.1f} s."
        return f"{met}{_incomplete(verdict)}"
    return f"All targets met, {rest}, in {seconds:.1f} s."


def _incomplete(verdict: Report) -> str:
    """Return how many kinds of fault were never tried, as a sentence; empty when none."""
    left = len(set(verdict.left_out))
    kinds = "1 kind of fault was" if left == 1 else f"{left} kinds of fault were"
    return f" {kinds} left out: raise --seconds to try all." if left else ""


def location(finding: Finding) -> str:
    """Return FILE:LINE of a finding, relative to the current directory where possible."""
    path = Path(finding.file)
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{finding.line}".replace(
        os.sep, "/"
    )


def _show(console: Console, number: int, finding: Finding) -> None:
    console.print()
    head = Text(f"{number}. {shown(location(finding))}  ", style="bold")
    head.append(f"{finding.mistake}{'' if finding.is_certain else ' (perhaps)'}", style="bold yellow")
    console.print(head, soft_wrap=True)
    if finding.code:
        _say(console, f"     {shown(finding.code)}", "dim")
    _say(console, f"   what: {shown(finding.what)}")
    _say(console, f"   fix:  {shown(finding.remedy)}")


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)
