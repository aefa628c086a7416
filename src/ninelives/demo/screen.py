"""Show the demo: a live table on a terminal, plain lines otherwise, and the report at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ninelives.chaos.report.terminal import show_numbers
from ninelives.demo.board import Row, Watcher
from ninelives.demo.judge import DemoReport

LAST_LINES = 8
SHOW_SECONDS = 0.1
WIDE = 110
"""From this width on, the table also shows what the customer wants."""
_STYLES = {"completed": "green", "crashed": "bold red", "running": "cyan", "waiting": "dim"}


class Quiet(Watcher):
    """Passes the table on to another watcher, and drops the lines."""

    def __init__(self, watcher: Watcher) -> None:
        self.show = watcher.show  # type: ignore[method-assign]


class Plain(Watcher):
    """Prints plain lines, for a log."""

    def __init__(self, console: Console) -> None:
        self._console, self._since = console, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to release."""

    def say(self, line: str) -> None:
        """Print an event with its time."""
        when = f"{time.monotonic() - self._since:6.2f} s"
        self._console.print(f"{when}  {line}", highlight=False, markup=False, soft_wrap=True)


class Lively(Plain):
    """A live table of the tickets, with the last events below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._rows: Sequence[Row] = ()
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""
        self._draw()
        self._live.stop()

    def say(self, line: str) -> None:
        """Show an event below the table."""
        self._lines.append(f"{time.monotonic() - self._since:6.2f} s  {line}")
        self._draw()

    def show(self, rows: Sequence[Row]) -> None:
        """Show the tickets, at most ten times a second."""
        self._rows = rows
        if time.monotonic() - self._shown_at >= SHOW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._shown_at = time.monotonic()
        lines = [
            Text(line, style="bold red" if "(number" in line else "", no_wrap=True, overflow="ellipsis")
            for line in self._lines
        ]
        self._live.update(Group(_table(self._rows, self._live.console.width), *lines), refresh=True)


def _table(rows: Sequence[Row], width: int) -> Table:
    is_wide = width >= WIDE
    table = Table(box=box.SQUARE if is_wide else None)
    for name in ("ticket", *(("customer",) if is_wide else ()), "state", "step"):
        table.add_column(name, no_wrap=True, min_width=17 if name == "step" else None)
    for name in ("steps", "crashes", "replayed", "recovery"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        recovery = f"{row.recovery_seconds * 1000:.0f} ms" if row.recovery_seconds is not None else ""
        table.add_row(
            row.id,
            *((row.title,) if is_wide else ()),
            Text(row.state, style=_STYLES.get(row.state, "")),
            row.step,
            *(str(row.steps), str(row.crashes), str(row.replayed), recovery),
        )
    return table


def conclude(console: Console, report: DemoReport, seconds: float) -> None:
    """Print the four numbers, a summary of the kills, and the model calls that were saved."""
    show_numbers(console, report.numbers)
    for line in (*_summary(report), _last_line(report, seconds)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _summary(report: DemoReport) -> list[str]:
    paid = report.savings
    calls, tokens = paid.asked + paid.calls_saved, paid.tokens + paid.tokens_saved
    return [
        f"{report.kills} kills interrupted runs {report.interrupted} times; recorded steps were replayed "
        f"instead of executed {report.replayed} times.",
        f"Model calls: {paid.asked}, {paid.tokens} tokens; {paid.asked_again} of them repeated a call whose "
        "answer was lost in a kill before it was recorded.",
        f"Restarting from scratch after each kill would take {calls} calls, {tokens} tokens. "
        f"Not paid twice: {paid.calls_saved} calls, {paid.tokens_saved} tokens.",
    ]


def _last_line(report: DemoReport, seconds: float) -> str:
    missed = ", ".join(one.name for one in report.numbers if not one.is_met)
    return f"Missed: {missed}. ({seconds:.1f} s)" if missed else f"All targets met, in {seconds:.1f} s."
