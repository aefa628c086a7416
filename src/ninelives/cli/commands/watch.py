"""`ninelives watch`: follow a run until it ends, and print one line per event.

On a terminal the last line shows the run's current state and is overwritten. Watching changes nothing in the
store, so a watcher may be killed at any moment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from ninelives.cli.options import EXIT_FAILED, EXIT_STORE, command, opened
from ninelives.cli.output import age, emit, is_terminal, say
from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt
from ninelives.core.ids import check_id
from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.run import Kind, Record, RunRow, State
from ninelives.engine.commit import large_bodies
from ninelives.store import Store
from ninelives.views import records_text
from ninelives.views.counted import counted
from ninelives.views.escape import shortened, shown
from ninelives.views.inbox_text import entry, ways
from ninelives.views.masking import masked_records

_POLL_SECONDS = 0.2
_STATUS_CHARACTERS = 100
_QUIET = frozenset({Kind.INTENT})
_CLEAR_LINE = "\r\x1b[2K"


def watch(url: str, run: str) -> None:
    """Follow a run until it ends."""
    name = check_id(run, "run id")
    with opened(url) as store:
        watcher = _Watcher(store, name, url)
        try:
            while not watcher.poll():
                store.wait_for_work(_POLL_SECONDS)
        except KeyboardInterrupt:
            watcher.clear()
            say("stopped watching; the run continues")
            raise typer.Exit(130) from None
    if watcher.state is not State.COMPLETED:
        raise typer.Exit(EXIT_FAILED)


class _Watcher:
    """Prints what is new of a run, and remembers what it has printed."""

    def __init__(self, store: Store, run: str, url: str) -> None:
        self._store, self._run, self._url = store, run, url
        self._seen, self._epoch, self._status = 0, -1, ""
        self._items: set[str] = set()
        self.state: State | None = None

    def poll(self) -> bool:
        """Print what is new; return whether the run has ended."""
        try:
            found = self._store.load_journal(self._run, since=self._seen)
        except Corrupt as error:
            self.clear()
            say(str(error))  # damaged, or encrypted with a key that is not here
            raise typer.Exit(EXIT_STORE) from None
        for line in self._news(
            found.run, masked_records(large_bodies.whole(self._store, found.records)), found.items
        ):
            self.clear()
            emit(line)
        self._seen, self.state = found.run.length, found.run.state
        if found.run.state.is_final:
            self.clear()
            return True
        self._show_status(found.run)
        return False

    def clear(self) -> None:
        """Erase the status line."""
        if is_terminal():
            sys.stdout.write(_CLEAR_LINE)
            sys.stdout.flush()

    def _news(self, run: RunRow, records: tuple[Record, ...], items: tuple[Item, ...]) -> Iterator[str]:
        if run.epoch != self._epoch and run.session is not None:
            yield shown(f"{moment(run.changed_ms):%H:%M:%S}     claimed by {run.session}")
            self._epoch = run.epoch
        for record in records:
            if record.kind not in _QUIET:
                yield _line(record)
        for item in items:
            if item.state is ItemState.OPEN and item.id not in self._items:
                self._items.add(item.id)
                yield from self._question(item)
        status = (
            f"{run.state}"
            + (", paused" if run.paused and not run.state.is_final else "")
            + (f", waits {run.waits}" if run.waits else "")
        )
        if status != self._status:
            self._status = status
            yield shown(f"{moment(run.changed_ms):%H:%M:%S} --- {status}")

    def _question(self, item: Item) -> Iterator[str]:
        one = entry(item)
        yield shown(f"{one.opened:%H:%M:%S} ??? {one.kind} {one.id}: {one.what}")
        for words in ways(one.takes, one.id, one.to):
            yield f"             $ {command(words, self._url)}"

    def _show_status(self, run: RunRow) -> None:
        if is_terminal():
            since = age((self._store.now_ms() - run.created_ms) / 1000)
            text = f"{run.id}: {run.state}, {counted(run.length, 'record')}, {since} old"
            sys.stdout.write(f"{_CLEAR_LINE}{shortened(text, _STATUS_CHARACTERS)}")
            sys.stdout.flush()


def _line(record: Record) -> str:
    (line,) = records_text.lines([record])
    step = f"{line.step}[{line.number}]" if line.number is not None else line.step
    where = f"{line.branch}/{step}" if line.branch else step
    return shown(
        f"{line.at:%H:%M:%S} {line.seq:>3} {line.kind:<9} {where}  {records_text.with_verdict(line)}".rstrip()
    )
