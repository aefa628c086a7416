"""`ninelives store retain`, `store compact`, and the largest runs of `store stats`."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

import msgspec
import typer

from ninelives.cli.options import existing, opened
from ninelives.cli.output import emit_table
from ninelives.core.errors import UsageError
from ninelives.ops import retention
from ninelives.stores.compaction import compact as give_back
from ninelives.stores.open import open_store
from ninelives.views.counted import counted
from ninelives.views.escape import shown


def retain(url: str, wanted: retention.Retention, every_seconds: float | None, *, as_json: bool) -> None:
    """Remove what is old; again and again with `every_seconds`."""
    wanted.check()
    report = partial(_report, as_json=as_json)
    with opened(url) as kept:
        if every_seconds is None:
            report(retention.retain(kept, wanted))
        else:
            retention.repeat(kept, wanted, every_seconds, report, _wait)


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _report(done: retention.Retained, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    removed = done.removed
    accounts = f"{counted(done.accounts, 'account')} of budgets, " if done.accounts else ""
    answers = f"{counted(done.answers, 'cached answer')}, " if done.answers else ""
    typer.echo(
        f"removed {counted(removed.journals, 'journal')} ({counted(removed.records, 'record')}), "
        f"{counted(removed.blobs, 'blob')}, {counted(removed.entries, 'log entry', 'log entries')}, "
        f"{accounts}{answers}{counted(removed.sessions, 'session')}; "
        f"{counted(removed.keys, 'key')} kept as tombstones; "
        f"{counted(removed.runs, 'run')} forgotten; the store has {size_text(done.size)}"
    )


def size_text(size: retention.Growth) -> str:
    """Return a store's size and growth in words."""
    if size.per_day is None:
        return f"{size.bytes:,} bytes used"
    return f"{size.bytes:,} bytes used, {size.per_day:+,} a day"


def parse_agents(given: list[str], age_ms: dict[str, int]) -> dict[str, int]:
    """Return the ages of agents, given as NAME=AGE and read before. Raises UsageError."""
    found: dict[str, int] = {}
    for text in given:
        agent = text.rpartition("=")[0]
        if not agent or agent in found:
            raise UsageError(f"--agent {text!r}", remedy="Write it as NAME=30d, once for each agent")
        found[agent] = age_ms[text]
    return found


def compact(url: str, *, as_json: bool) -> None:
    """Give free disk space back."""
    # Opened once: that migrates it, and finds a store that is damaged or behind its anchor.
    with closing(open_store(existing(url))):
        pass
    done = give_back(url)
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
    elif done.before:
        typer.echo(f"{done.before:,} bytes before, {done.after:,} after: {done.note}")
    else:
        typer.echo(done.note)


def show_largest(found: list[retention.Large]) -> None:
    """Print the largest runs."""
    rows = [
        (shown(one.run), shown(one.agent), one.state, f"{one.records:,}", f"{one.bytes:,}") for one in found
    ]
    emit_table(("run", "agent", "status", "records", "bytes"), rows)
