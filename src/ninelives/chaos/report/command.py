"""Run `ninelives chaos`: set up the scratch environment, run the campaign, build the report.

All files live in a temporary directory. If this process is killed, every process it started dies with it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console

from ninelives.chaos.campaign.campaign import Campaign, carry_out, failure
from ninelives.chaos.campaign.plan import EVERY_STEP, RANDOM, Wishes
from ninelives.chaos.findings.detectors import find
from ninelives.chaos.findings.metrics import Report, judge
from ninelives.chaos.findings.source_code import split
from ninelives.chaos.protocol import LifeSettings, People
from ninelives.chaos.report import terminal
from ninelives.chaos.trial.fork_server import ForkServers
from ninelives.chaos.trial.proxy import Proxy
from ninelives.chaos.trial.scratch_store import urls
from ninelives.chaos.trial.trial import Ground, Trial
from ninelives.chaos.trial.work_tree import Tree
from ninelives.core.errors import NineLivesError, UsageError
from ninelives.stores.url import backend_of


class ChaosOptions(Struct, frozen=True, kw_only=True):
    """The parsed command line."""

    target: str
    words: tuple[str, ...]
    named: tuple[str, ...]
    kills: int
    seconds: float
    at: str
    seed: int
    tree: Path
    limit_seconds: float
    store: str
    people: People = People()
    may_fail: bool = False


def run(options: ChaosOptions, console: Console) -> tuple[Campaign, Report]:
    """Run the campaign and evaluate it. Raises UsageError."""
    wishes = Wishes(
        kills=options.kills,
        seconds=options.seconds,
        at=_at(options.at, options.tree),
        seed=options.seed,
        may_fail=options.may_fail,
    )
    tree, url = Tree(options.tree), urls(options.store)
    with (
        ending_in_order(),
        tempfile.TemporaryDirectory(prefix="ninelives-chaos-") as scratch,
        ForkServers(backend_of(options.store)) as fork_servers,
        Proxy() as proxy,
        terminal.watching(console) as progress,
    ):
        ground = Ground(
            fork_servers=fork_servers,
            home=Path(scratch).resolve(),
            tree=tree,
            settings=LifeSettings(
                target=_in_tree(options.target, tree.root),
                words=options.words,
                named=options.named,
                people=options.people,
                environment=proxy.environment,
            ),
            url=url,
            limit_seconds=options.limit_seconds,
            requests=proxy.since,
        )
        campaign = carry_out(ground, wishes, progress)
    return campaign, judge(campaign, find(campaign))


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that all processes are ended and all files removed."""
    before = {signum: signal.signal(signum, _interrupt) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def fields(campaign: Campaign, verdict: Report) -> dict[str, Any]:
    """Return the report as JSON fields."""
    return {
        "is_met": verdict.is_met,
        "seconds": round(campaign.seconds, 3),
        **msgspec.to_builtins(verdict),
        "calm": [_trial_fields(trial) for trial in campaign.calm],
        "trials": [_trial_fields(trial) for trial in campaign.trials],
    }


def no_fields(error: NineLivesError) -> dict[str, Any]:
    """Return the JSON fields of a campaign that could not start."""
    text = f"{type(error).__name__}: {error}"
    return {"is_met": False, "error": text, "numbers": [], "findings": [], "calm": [], "trials": []}


def _trial_fields(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.name,
        "state": trial.state,
        "why": trial.why or (failure(trial) if trial.error else ""),
        "lives": len(trial.lives),
        "faults": len(trial.faults),
        "seconds": round(trial.seconds, 3),
    }


def _at(at: str, tree: Path) -> str:
    """Validate `--at`. Raises UsageError."""
    if at in ("", EVERY_STEP, RANDOM):
        return at
    file, line = split(at)
    path = Path(file).resolve()
    if not line or not path.is_file():
        raise UsageError(
            f"--at {at!r} is not valid",
            remedy=f"Use {EVERY_STEP}, {RANDOM}, or FILE:LINE of a line that is executed",
        )
    if not 0 < line <= len(path.read_text(errors="replace").splitlines()):
        raise UsageError(f"{file} has no line {line}", remedy="Give a line that is executed")
    if not path.is_relative_to(tree.resolve()):
        raise UsageError(
            f"{file} is not in {tree.resolve()}", remedy="Give the directory that contains it with --tree"
        )
    return f"{path}:{line}"


def _in_tree(target: str, root: Path) -> str:
    """Make the agent's file relative to the tree, so that the name also fits every copy of it."""
    before, colon, name = target.rpartition(":")
    file = Path(before if colon else target)
    if not file.is_file():
        return target
    path = file.resolve()
    inside = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{os.fspath(inside)}{colon}{name if colon else ''}"
