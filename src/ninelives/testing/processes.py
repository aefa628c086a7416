"""The real thing, for a test: `ninelives chaos` on an agent, in processes that are really killed.

Slower than a sandbox by far (each life is a process that loads the code), and sees what a sandbox cannot:
files half written, effects outside of steps, code in `finally` that would have acted.
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
"""The numbers that must meet their targets; how long recovery took is told, and is the test machine's."""


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
    """Kill an agent in processes of its own, as `ninelives chaos` does, and hold it to its targets but time.

    `target` is the agent, declared in a file, or "FILE:AGENT". `tree` is its working directory, of which
    every run gets a copy. `at`: "every-step", "random", "FILE:LINE", or "" for all that there is. No kind of
    fault is begun after `seconds`; a run may take `limit_seconds` without faults. `store` names a server.
    An agent whose right end is a failure raises nl.Permanent, or is called with `may_fail`.
    Raises NotCrashproof, with file and line of what is to be mended; ChaosFailed when already without faults
    it comes to nothing; UsageError.
    """
    order = command.ChaosOptions(
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
    _, verdict = command.run(order, Console(quiet=True))
    if verdict.error:
        raise ChaosFailed(verdict.error)
    if told := _told(verdict):
        raise NotCrashproof("\n".join(told))
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


def _told(verdict: Report) -> list[str]:
    mend = [f"{one.file}:{one.line}: {one.mistake}: {one.what}. {one.remedy}" for one in verdict.findings]
    missed = [one for one in verdict.numbers if one.name in HELD_TO and not one.is_met]
    return [*mend, *(f"{one.name}: {one.value}, and the target is {one.target}" for one in missed)]
