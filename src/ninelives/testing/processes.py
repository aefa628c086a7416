"""Run `ninelives chaos` on an agent from a test, with real processes and real kills.

It is much slower than a sandbox (each process loads the code), but it sees what a sandbox cannot:
half-written files, effects outside steps, and `finally` blocks that act.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from rich.console import Console

from ninelives.chaos.campaign.plan import EVERY_STEP
from ninelives.chaos.findings.metrics import Report
from ninelives.chaos.report import command
from ninelives.chaos.trial.scratch_store import SQLITE
from ninelives.chaos.trial.trial import ChaosFailed
from ninelives.core.errors import UsageError
from ninelives.core.values.codec import codec_for
from ninelives.engine.spec.registry import Agent
from ninelives.testing.kill_trials import NotCrashproof

HELD_TO = ("duplicate rate", "consistency", "recovery rate")
"""The numbers that must meet their targets; recovery time depends on the machine and is only reported."""


def chaos(
    target: Any,
    *args: Any,
    kills: int = 20,
    seconds: float = 60.0,
    at: str = EVERY_STEP,
    tree: str | Path = ".",
    seed: int = 9,
    limit_seconds: float = 60.0,
    store: str = SQLITE,
    may_fail: bool = False,
) -> Report:
    """Kill an agent in separate processes, as `ninelives chaos` does; require all targets but recovery time.

    `target` is the agent, declared in a file, or "FILE:AGENT". `tree` is its working directory; every run
    works on a copy. `at` is "every-step", "random", "FILE:LINE", or "" for all kinds of fault. No fault is
    started after `seconds`; a run may take `limit_seconds` without faults. `store` is the URL of a server.
    If the agent is expected to fail, let it raise nl.Permanent or pass `may_fail`.
    Raises NotCrashproof, with file and line of each finding; ChaosFailed when the agent does not end or fails
    even without faults; UsageError.
    """
    options = command.ChaosOptions(
        target=_named(target),
        words=tuple(codec_for(type(arg)).encode(arg).decode() for arg in args),
        named=(),
        kills=kills,
        seconds=seconds,
        at=at,
        seed=seed,
        tree=Path(tree),
        limit_seconds=limit_seconds,
        store=store,
        may_fail=may_fail,
    )
    _, verdict = command.run(options, Console(quiet=True))
    if verdict.error:
        raise ChaosFailed(verdict.error)
    if problems := _problems(verdict):
        raise NotCrashproof("\n".join(problems))
    return verdict


def _named(target: Any) -> str:
    if isinstance(target, str):
        return target
    agent = getattr(target, "__ninelives__", None)
    file = inspect.getsourcefile(target.raw) if isinstance(agent, Agent) else None
    if not isinstance(agent, Agent) or file is None or "<locals>" in target.raw.__qualname__:
        raise UsageError(
            f"{target!r} cannot be found by another process",
            remedy='Declare the agent at the top of a file, or name it: "agents.py:support"',
        )
    return f"{file}:{target.raw.__name__}"


def _problems(verdict: Report) -> list[str]:
    findings = [f"{one.file}:{one.line}: {one.mistake}: {one.what}. {one.remedy}" for one in verdict.findings]
    missed = [one for one in verdict.numbers if one.name in HELD_TO and not one.is_met]
    return [*findings, *(f"{one.name}: {one.value}, target {one.target}" for one in missed)]
