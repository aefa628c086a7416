"""The screen of `ninelives up`: workers, runs by state, recoveries; events scroll above it.

A separate thread polls the store and draws, so that a slow store never delays the supervisor. If the thread
dies, only the screen stops.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ninelives.cli.output import age
from ninelives.core.errors import StoreError
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.model.session import Session
from ninelives.store import Store
from ninelives.views.escape import shown
from ninelives.views.recoveries import RecoveryEntry, recoveries

_POLL_SECONDS = 1.0
MOST_RUNS, LAST_RECOVERIES = 1_000, 3
MINUTE_MS = 60_000
_STATES = tuple(state for state in State if not state.is_final and state is not State.MOVED)


class View(Struct, frozen=True):
    """What the screen shows, as read from the store."""

    sessions: Sequence[Session] = ()
    runs: Sequence[RunRow] = ()
    ended: int = 0
    recovered: Sequence[RecoveryEntry] = ()
    now_ms: int = 0
    trouble: str = ""


class Board:
    """A live view of a store on a terminal."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)

    def print_line(self, line: str) -> None:
        """Print a line of the log above the screen."""
        self._console.print(Text(line), soft_wrap=True)

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw the screen while the context is open."""
        over = threading.Event()
        drawing = threading.Thread(target=self._draw, args=(over,), name="ninelives-board", daemon=True)
        with self._live:
            drawing.start()
            try:
                yield
            finally:
                over.set()
                drawing.join(_POLL_SECONDS)

    def _draw(self, over: threading.Event) -> None:
        while not over.is_set():
            self._live.update(picture(view(self._store)), refresh=True)
            over.wait(_POLL_SECONDS)


def view(store: Store) -> View:
    """Read what the screen shows. If the store raises, the view carries the error's text instead."""
    try:
        now_ms = store.now_ms()
        ended = store.list_runs(RunQuery(states=(State.COMPLETED,), limit=MOST_RUNS))
        return View(
            sessions=[one for one in store.list_sessions() if one.agents],
            runs=store.list_runs(RunQuery(states=_STATES, limit=MOST_RUNS)),
            ended=sum(run.changed_ms > now_ms - MINUTE_MS for run in ended),
            recovered=[one for one in recoveries(store, None, 50) if one.kind is Happening.RECOVERED],
            now_ms=now_ms,
        )
    except StoreError as error:
        return View(trouble=error.what)


def picture(seen: View) -> Group:
    """Return the screen's content."""
    if seen.trouble:
        return Group(Text(shown(f"the store: {seen.trouble}"), style="red"))
    workers = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("worker", "pid", "runs", "up"):
        workers.add_column(column, no_wrap=True)
    for one in seen.sessions:
        runs = sum(run.session == one.id for run in seen.runs)
        up = age((seen.now_ms - one.started_ms) / 1000)
        workers.add_row(Text(shown(one.host)), str(one.pid), _many(runs), up)
    counts = {state: sum(run.state is state for run in seen.runs) for state in _STATES}
    states = ", ".join(f"{_many(count)} {state}" for state, count in counts.items())
    rate = f"{_many(seen.ended)} completed in the last minute"
    last = [shown(f"recovered {one.run}: {one.text}") for one in seen.recovered[:LAST_RECOVERIES]]
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in last]
    return Group(workers, Text(f"runs: {states}; {rate}"), *lines)


def _many(count: int) -> str:
    return str(count) if count < MOST_RUNS else f"{MOST_RUNS}+"
