"""Trials: run a story again and again, each time with its worker killed at another store call.

A story runs an agent in a sandbox and returns what must not change: the agent's result, and what the fakes of
the outside world saw. It runs twice without a kill first; if those two differ, the story itself varies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.testing.dying_store import Kill
from ninelives.testing.sandbox import Sandbox

TRIES = 3
"""How often to try a kill whose call is not reached."""

Story = Callable[[Sandbox], Any]


class NotCrashproof(AssertionError):
    """A story ended differently because its worker was killed."""


class Trials(Struct, frozen=True):
    """The kills that were tried; all ended in the same `outcome` as without a kill."""

    outcome: Any
    calls: int
    kills: tuple[str, ...]
    missed: int
    """Kills whose call was not reached: which records share a commit may depend on the machine's timing."""


def crashproof(story: Story, *, kills: int | None = None, deaths: int = 1, at: Kill | None = None) -> Trials:
    """Run a story with its worker killed before and after every writing store call, one kill at a time.

    `kills` limits the number of kills, those before commits first; `deaths` is how many workers in a row die,
    each at its own call of the same number; `at` tries one kill only.
    Raises NotCrashproof, from the story's exception if it raised one; UsageError when the story makes no
    store call, or `at` is never reached.
    """
    outcome, calls = _run(story)
    again, more = _run(story)
    if again != outcome:
        raise NotCrashproof(
            f"without any kill the story returned {outcome!r}, and then {again!r}. "
            "Create its fakes inside the story, and return only values that are the same each time"
        )
    made: list[str] = []
    missed = 0
    for kill in [at] if at is not None else choose(max(calls, more, key=len), kills):
        found: list[str] = []
        for _ in range(TRIES):
            found = found or _try(story, kill, deaths, outcome)
        made += found
        missed += not found
    if at is not None and not made:
        raise UsageError(
            f"nothing was killed: {at} was not reached; without a kill the story calls {at.call} "
            f"{calls.count(at.call)} times",
            remedy="Use a kill from a failure report",
        )
    return Trials(outcome, len(calls), tuple(made), missed)


def choose(calls: Sequence[str], kills: int | None) -> Sequence[Kill]:
    """Return the kills to try at these calls: all, or at most `kills`.

    With a limit, kills before a commit come first (the body has acted, nothing is recorded), then those after
    a commit, then all others; within each group they are spread evenly.
    Raises UsageError when there are no calls.
    """
    if kills is not None and (type(kills) is not int or kills < 1):
        raise UsageError(
            f"kills={kills!r} is not valid", remedy="Give a number, at least 1, or omit it to try all kills"
        )
    if not calls:
        raise UsageError("nothing was run in the sandbox", remedy="Run an agent: sandbox.run(agent, ...)")
    numbered = [(call, calls[: index + 1].count(call)) for index, call in enumerate(calls)]
    every = [kill for call in numbered for kill in (Kill("before", *call), Kill("after", *call))]
    if kills is None or kills >= len(every):
        return every
    sorts = [
        [kill for kill in every if kill.call == "commit" and kill.at == "before"],
        [kill for kill in every if kill.call == "commit" and kill.at == "after"],
        [kill for kill in every if kill.call != "commit"],
    ]
    chosen: set[Kill] = set()
    for sort in sorts:
        room = min(kills - len(chosen), len(sort))
        chosen.update(sort[number * len(sort) // room] for number in range(room))
    return [kill for kill in every if kill in chosen]


def _run(story: Story) -> tuple[Any, Sequence[str]]:
    with Sandbox() as sandbox:
        outcome = story(sandbox)
    return outcome, sandbox.calls


def _try(story: Story, kill: Kill, deaths: int, expected: Any) -> list[str]:
    sandbox = Sandbox(kill=kill, deaths=deaths)
    try:
        with sandbox:
            outcome = story(sandbox)
    except Exception as error:
        raise NotCrashproof(f"{where_killed(sandbox, kill)}, the story raised {error!r}") from error
    if outcome != expected:
        raise NotCrashproof(
            f"{where_killed(sandbox, kill)}, the story returned something else:\n"
            f"  without a kill: {expected!r}\n  with this kill: {outcome!r}"
        )
    return sandbox.kills


def where_killed(sandbox: Sandbox, kill: Kill) -> str:
    """Describe where a sandbox was killed, or that the kill was not reached."""
    return f"killed {', then '.join(sandbox.kills) or f'nowhere: {kill} was not reached'}"
