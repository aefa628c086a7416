"""Show the demo: a live table on a terminal, plain lines otherwise, and the report at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
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


class Screen(Watcher):
    """A live table of the tickets with the last events below it; in a log, one plain line for each event."""

    def __init__(self, console: Console) -> None:
        self._console, self._since, self._drawn_at = console, time.monotonic(), 0.0
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._rows: Sequence[Row] = ()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._draw(self._live)
            self._live.stop()

    def say(self, line: str) -> None:
        """Show an event with its time."""
        self._lines.append(f"{time.monotonic() - self._since:6.2f} s  {line}")
        if self._live is not None:
            self._draw(self._live)
        else:
            self._console.print(self._lines[-1], highlight=False, markup=False, soft_wrap=True)

    def show(self, rows: Sequence[Row]) -> None:
        """Show the tickets, at most ten times a second."""
        self._rows = rows
        if self._live is not None and time.monotonic() - self._drawn_at >= SHOW_SECONDS:
            self._draw(self._live)

    def _draw(self, live: Live) -> None:
        self._drawn_at = time.monotonic()
        lines = [
            Text(line, style="bold red" if "(number" in line else "", no_wrap=True, overflow="ellipsis")
            for line in self._lines
        ]
        live.update(Group(_table(self._rows, self._console.width), *lines), refresh=True)


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
            row.ticket.id,
            *((row.ticket.title,) if is_wide else ()),
            Text(row.state, style=_STYLES.get(row.state, "")),
            row.step,
            *(str(row.steps), str(row.crashes), str(row.replayed), recovery),
        )
    return table


def conclude(console: Console, report: DemoReport, seconds: float) -> None:
    """Print the four numbers, a summary of the kills, and the model calls that were saved."""
    show_numbers(console, report.numbers)
    paid = report.savings
    calls, tokens = paid.calls + paid.calls_saved, paid.tokens + paid.tokens_saved
    missed = ", ".join(one.name for one in report.numbers if not one.is_met)
    for line in (
        f"{report.kills} kills interrupted runs {report.interrupted} times; recorded steps were replayed "
        f"instead of executed {report.replayed} times.",
        f"Model calls: {paid.calls}, {paid.tokens} tokens; {paid.repeated} of them repeated a call whose "
        "answer was lost in a kill before it was recorded.",
        f"Restarting from scratch after each kill would take {calls} calls, {tokens} tokens. "
        f"Not paid twice: {paid.calls_saved} calls, {paid.tokens_saved} tokens.",
        f"Missed: {missed}. ({seconds:.1f} s)" if missed else f"All targets met, in {seconds:.1f} s.",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
