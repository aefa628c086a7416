"""How far a session is: two bars on a terminal, plain lines in a log."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_WIDTH = 48


class Watch:
    """Told of everything that begins and ends. Use it as `with`."""

    def __init__(self, console: Console, workloads: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = console
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._all = self._bar.add_task("workloads".ljust(_WIDTH), total=workloads)
        self._part = self._bar.add_task("", total=1)
        self._what, self._ticks = "", 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, title: str, cells: int) -> None:
        """A workload begins, with so many cells to play."""
        if not self._console.is_terminal:
            self._console.print(title)
        self._bar.reset(self._part, total=cells)

    def say(self, what: str) -> None:
        """Something begins."""
        self._what, self._ticks = what, 0
        self._bar.update(self._part, description=what[:_WIDTH].ljust(_WIDTH))

    def tick(self) -> None:
        """A part of a cell is done; nobody knows how many there are."""
        self._ticks += 1
        shown = f"{self._what[: _WIDTH - 6]} {self._ticks}"
        self._bar.update(self._part, description=shown.ljust(_WIDTH))

    def cell(self) -> None:
        """A cell is done."""
        self._bar.advance(self._part)

    def end(self) -> None:
        """A workload is done."""
        self._bar.advance(self._all)
