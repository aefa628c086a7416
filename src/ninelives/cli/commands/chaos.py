"""`ninelives chaos`: kill the user's agent at every step, and report what is not crash-safe in it."""

from __future__ import annotations

import os
from pathlib import Path

import typer
from rich.console import Console

from ninelives.chaos.protocol import People
from ninelives.chaos.report import command, terminal
from ninelives.chaos.report.html import page
from ninelives.cli.options import EXIT_FAILED
from ninelives.cli.output import emit_json, say
from ninelives.core.errors import NineLivesError, UsageError
from ninelives.runtime.inbox import from_json

_EXIT_INTERRUPTED = 130


def chaos(
    target: str,
    words: list[str],
    *,
    named: list[str],
    kills: int,
    seconds: float,
    at: str,
    seed: int,
    tree: Path,
    limit_seconds: float,
    store: str,
    answer: str | None,
    signals: list[str],
    html: Path | None,
    as_json: bool,
    may_fail: bool = False,
    complete: bool = False,
) -> None:
    """Run the trials and print the report.

    Exit 0 all targets met, 1 a target missed (or, with `complete`, a kind of fault left out), 2 wrong usage.
    """
    console = Console(stderr=as_json)
    try:
        _check(seconds, limit_seconds, tree, html)
        options = command.ChaosOptions(
            target=target,
            words=tuple(words),
            named=tuple(named),
            kills=kills,
            seconds=seconds,
            at=at,
            seed=seed,
            tree=tree,
            limit_seconds=limit_seconds,
            store=store,
            people=_people(answer, signals),
            may_fail=may_fail,
        )
        campaign, verdict = command.run(options, console)
    except KeyboardInterrupt:
        console.print("interrupted; every process has been stopped and nothing is left behind")
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    except NineLivesError as error:
        if as_json:  # a program that reads JSON from stdout gets the error there, too
            emit_json(command.no_fields(error))
        raise
    if html is not None:
        html.write_text(page(campaign, verdict, target), encoding="utf-8")
        say(f"the report is in {html}")
    if as_json:
        emit_json(command.fields(campaign, verdict))
        if verdict.error:
            say(verdict.error)
    else:
        terminal.conclude(console, verdict, campaign)
    if not verdict.is_met or (complete and verdict.left_out):
        raise typer.Exit(EXIT_FAILED)


def _check(seconds: float, limit_seconds: float, tree: Path, html: Path | None) -> None:
    """Refuse invalid options before any process is started. Raises UsageError."""
    for name, value in (("--seconds", seconds), ("--limit", limit_seconds)):
        if not value > 0:
            raise UsageError(f"{name} {value:g}", remedy="Give seconds above 0")
    if not tree.is_dir():
        raise UsageError(f"--tree {tree} is not a directory", remedy="Name the agent's working directory")
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"--html {html}: there is no such directory", remedy="Create it first")
    if html is not None and not _can_be_written(html):
        raise UsageError(f"--html {html} cannot be written", remedy="Name a file that you may write")


def _can_be_written(file: Path) -> bool:
    if file.exists():
        return file.is_file() and os.access(file, os.W_OK)
    return os.access(file.absolute().parent, os.W_OK)


def _people(answer: str | None, signals: list[str]) -> People:
    """Parse the answers and signals that the trials send. Raises UsageError."""
    sent = []
    for signal in signals:
        name, equals, word = signal.partition("=")
        if not equals:
            raise UsageError(f"--signal {signal!r}", remedy="Write it as NAME=JSON")
        sent.append((name, bytes(from_json(word, f"the signal {name}")).decode()))
    given = "" if answer is None else bytes(from_json(answer, "the answer")).decode()
    return People(answer=given, signals=tuple(sent))
