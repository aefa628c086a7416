"""Print results: tables on a terminal, aligned text in a pipe, and never a raw control character.

Results go to stdout, everything else to stderr. When the reader of stdout closes the pipe, we exit quietly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, EXIT_PIPE
from ninelives.store import Progress
from ninelives.views.escape import ascii_json, json_text, shown

_SHORT_CHARACTERS, _MOST_PAUSED = 20, 20
_AGES = ((86_400, "d"), (3_600, "h"), (60, "m"))


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def emit(text: str) -> None:
    """Print to stdout and flush. Exits when the pipe is closed or stdout cannot be written."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        raise typer.Exit(EXIT_PIPE) from None
    except OSError as error:
        _forget_stdout()
        say(f"the output could not be written: {error.strerror}")
        raise typer.Exit(EXIT_FAILED) from None


def _forget_stdout() -> None:
    """Redirect stdout to /dev/null: Python flushes its buffer again at exit, and must not fail there."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def emit_json(value: object) -> None:
    """Print a value as JSON: indented for a person, on one line for a program."""
    text = json_text(msgspec.json.encode(value), pretty=is_terminal())
    try:
        text.encode(sys.stdout.encoding)
    except (UnicodeError, AttributeError):
        text = ascii_json(text)  # the locale cannot encode these characters
    emit(text)


def say(line: str) -> None:
    """Print one line that is not the result to stderr."""
    with suppress(OSError, AttributeError, ValueError):
        sys.stderr.write(f"ninelives: {shown(line)}\n")
        sys.stderr.flush()


def emit_paused(runs: Sequence[str], more: str) -> None:
    """Print which runs are paused; of many, the first ones and the command that lists them all."""
    for run in runs[:_MOST_PAUSED]:
        emit(f"paused {shown(run)}")
    if len(runs) > _MOST_PAUSED:
        emit(f"and {len(runs) - _MOST_PAUSED:,} more; see {more}")


def say_created(where: str) -> None:
    """Say that a store was created, if one was (`options.to_be_created`)."""
    if where:
        say(f"created a new store: {where}")


def emit_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their columns; every cell is escaped."""
    cells = [[shown(cell) for cell in row] for row in rows]
    emit(_rich(columns, cells) if is_terminal() else _plain(columns, cells))


def _plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    table = [[column.upper() for column in columns], *[[cell or "-" for cell in row] for row in cells]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _rich(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # A screen is narrow: drop empty columns, and do not wrap short cells.
    widths = [max((len(row[at]) for row in cells), default=0) for at in range(len(columns))]
    for column, width in zip(columns, widths, strict=True):
        if width:
            table.add_column(column, overflow="fold", no_wrap=width <= _SHORT_CHARACTERS)
    for row in cells:
        table.add_row(*(Text(cell) for cell, width in zip(row, widths, strict=True) if width))
    console = Console(markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def age(seconds: float) -> str:
    """Return a duration in one unit: 12s, 5m, 3h, 2d."""
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def when_text(when: datetime) -> str:
    """Return a time as text: UTC, to the second."""
    return when.strftime("%Y-%m-%d %H:%M:%SZ")


@contextmanager
def bar(what: str, *, as_json: bool) -> Iterator[Progress]:
    """Yield a function that updates a progress bar, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=console, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
