"""Shows what runs: a bar for each part on a terminal, lines as they come elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.proof.report import Report

_SECTION = re.compile("(held|violated|not run) |seed ")
_VIOLATIONS = 5


class Board:
    """The whole programme, and those of its parts that run now."""

    def __init__(self, console: Console, count: int) -> None:
        columns = (
            TextColumn("{task.description:60}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._console = console
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._whole = self._progress.add_task("the fault programme", total=count)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def part(self, name: str) -> Iterator[Callable[[str], None]]:
        """Show a part while it runs; yields what takes the lines that it says."""
        bar = self._progress.add_task(name, total=None)
        self._say(f"began    {name}")

        def heard(line: str) -> None:
            if _SECTION.match(line):
                self._progress.advance(bar)
                self._say(f"{name}: {line}" if line.startswith("seed") else f"{line[:8]} {name}: {line[9:]}")

        yield heard
        self._progress.remove_task(bar)
        self._progress.advance(self._whole)

    def ended(self, name: str, report: Report) -> None:
        """Tell what a part came to."""
        bad = [section for section in report.sections if section.status == "violated"]
        self._say(
            f"ended    {name}: {len(report.sections)} sections, {len(bad)} violated ({report.seconds:.0f} s)"
        )
        for section in bad:
            for violation in section.violations[:_VIOLATIONS]:
                self._say(f"  {section.name}: {violation}", style="red")

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True, style=style)
