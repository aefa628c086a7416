"""`ninelives notify`: report to people what waits for them, what failed and what went wrong."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from ninelives.cli.options import EXIT_FAILED, age_ms, command, opened
from ninelives.cli.output import age, emit_json, emit_table, say
from ninelives.core.errors import UsageError
from ninelives.ops.notify.config import Settings, read_settings
from ninelives.ops.notify.notifier import Notifier


def settings_of(path: Path) -> Settings:
    """Read a configuration file. Raises UsageError."""
    return read_settings(path, os.environ)


def notify(url: str, path: Path, *, once: bool, test: bool, since: str, as_json: bool) -> None:
    """Report until stopped; with `once`, search and try once; with `test`, send one test to each channel."""
    settings = settings_of(path)
    if once and test:
        raise UsageError("--once and --test exclude each other", remedy="Give one of them")
    since_ms = age_ms(since) if since else 0
    with opened(url) as store:
        notifier = Notifier(store, settings, lambda words: command(words, url), say, since_ms)
        if test:
            _report_test(notifier.test(), as_json=as_json)
        elif once:
            _report_once(notifier, as_json=as_json)
        else:
            say(f"notices go to {', '.join(channel.name for channel in settings.channels)}")
            notifier.run()


def _report_test(errors: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        emit_json([{"channel": name, "is_sent": not error, "error": error} for name, error in errors.items()])
    else:
        emit_table(("channel", "test"), [(name, error or "sent") for name, error in errors.items()])
    if any(errors.values()):
        raise typer.Exit(EXIT_FAILED)


def _report_once(notifier: Notifier, *, as_json: bool) -> None:
    states = notifier.once()
    if as_json:
        emit_json(states)
    else:
        now_ms = notifier.now_ms()
        rows = [
            (
                name,
                str(one.sent),
                str(one.waiting),
                age((now_ms - one.oldest_waiting_ms) / 1000) if one.oldest_waiting_ms else "",
                one.error,
            )
            for name, one in states.items()
        ]
        emit_table(("channel", "sent", "waiting", "oldest", "error"), rows)
    if any(one.waiting for one in states.values()):
        raise typer.Exit(EXIT_FAILED)
