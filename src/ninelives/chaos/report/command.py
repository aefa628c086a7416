"""The command: the ground for the trials, the trials, the report.

Everything happens in a temporary directory. If we are killed, the processes that we started die with us.
"""

from __future__ import annotations

import os
import tempfile
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
from ninelives.chaos.protocol import People
from ninelives.chaos.report import terminal
from ninelives.chaos.trial.fork_server import Cradles
from ninelives.chaos.trial.proxy import Proxy
from ninelives.chaos.trial.scratch_store import urls
from ninelives.chaos.trial.trial import Ground, Trial, TrialTarget
from ninelives.chaos.trial.work_tree import Tree
from ninelives.core.errors import NineLivesError, UsageError
from ninelives.demo.command import ending_in_order
from ninelives.stores.url import backend_of


class ChaosOptions(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

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


def run(order: ChaosOptions, console: Console) -> tuple[Campaign, Report]:
    """Carry out the trials and judge them. Raises UsageError."""
    wishes = Wishes(
        kills=order.kills,
        seconds=order.seconds,
        at=_at(order.at, order.tree),
        seed=order.seed,
        may_fail=order.may_fail,
    )
    tree, url = Tree(order.tree), urls(order.store)
    with (
        ending_in_order(),
        tempfile.TemporaryDirectory(prefix="ninelives-chaos-") as scratch,
        Cradles(backend_of(order.store)) as cradles,
        Proxy() as proxy,
        terminal.watching(console) as told,
    ):
        ground = Ground(
            cradles=cradles,
            home=Path(scratch).resolve(),
            tree=tree,
            target=TrialTarget(_in_tree(order.target, tree.root), order.words, order.named),
            url=url,
            limit_seconds=order.limit_seconds,
            people=order.people,
            environment=proxy.environment,
            requests=proxy.since,
        )
        campaign = carry_out(ground, wishes, told)
    return campaign, judge(campaign, find(campaign))


def fields(campaign: Campaign, verdict: Report) -> dict[str, Any]:
    """Return the report for machines."""
    told = msgspec.to_builtins(verdict)
    return {
        "is_met": verdict.is_met,
        "seconds": round(campaign.seconds, 3),
        **told,
        "calm": [_told(trial) for trial in campaign.calm],
        "trials": [_told(trial) for trial in campaign.trials],
    }


def no_fields(error: NineLivesError) -> dict[str, Any]:
    """Return the report for machines of what could not be begun."""
    said = f"{type(error).__name__}: {error}"
    return {"is_met": False, "error": said, "numbers": [], "findings": [], "calm": [], "trials": []}


def _told(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.name,
        "state": trial.state,
        "why": trial.why or (failure(trial) if trial.error else ""),
        "lives": len(trial.lives),
        "faults": len(trial.faults),
        "seconds": round(trial.seconds, 3),
    }


def _at(at: str, tree: Path) -> str:
    """Check where to strike. Raises UsageError."""
    if at in ("", EVERY_STEP, RANDOM):
        return at
    file, line = split(at)
    path = Path(file).resolve()
    if not line or not path.is_file():
        raise UsageError(
            f"--at {at!r} is no moment",
            remedy=f"Say {EVERY_STEP}, {RANDOM}, or FILE:LINE of a line that is executed",
        )
    if not 0 < line <= len(path.read_text(errors="replace").splitlines()):
        raise UsageError(f"{file} has no line {line}", remedy="Name a line that is executed")
    if not path.is_relative_to(tree.resolve()):
        raise UsageError(
            f"{file} is not in {tree.resolve()}", remedy="Name the directory that it is in with --tree"
        )
    return f"{path}:{line}"


def _in_tree(target: str, root: Path) -> str:
    """Name the agent's file as it is called in a copy of the tree."""
    place, colon, name = target.rpartition(":")
    file = Path(place if colon else target)
    if not file.is_file():
        return target
    path = file.resolve()
    inside = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{os.fspath(inside)}{colon}{name if colon else ''}"
