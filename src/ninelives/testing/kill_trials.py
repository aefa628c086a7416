"""Trials: a story told again and again, each time with its worker killed at another call of the store.

The story runs an agent in a sandbox and returns what must be the same whatever happens: its result, and what
its fakes of the outside world have seen. It is told twice without a kill first: what already differs then is
the story's own doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.testing.dying_store import Kill
from ninelives.testing.sandbox import Sandbox

TRIES = 3
"""How often a kill is tried whose call is not reached."""

Story = Callable[[Sandbox], Any]


class NotCrashproof(AssertionError):
    """A story ended otherwise because its worker was killed."""


class Trials(Struct, frozen=True):
    """What was tried, and all ended as without a kill: `outcome`."""

    outcome: Any
    calls: int
    kills: tuple[str, ...]
    missed: int
    """Kills at calls that were not made again: what is committed together may depend on the machine."""


def crashproof(story: Story, *, kills: int | None = None, deaths: int = 1, at: Kill | None = None) -> Trials:
    """Tell a story with its worker killed before and after every store call that writes, one at a time.

    `kills` is at most how many are tried, before commits first; `deaths` how many lives in a row die at the
    same number; `at` tries one kill only.
    Raises NotCrashproof, from what the story raised, if it did; UsageError when it needs no store, or `at` is
    never reached.
    """
    outcome, calls = _tell(story)
    again, more = _tell(story)
    if again != outcome:
        raise NotCrashproof(
            f"without any kill the story ended as {outcome!r}, and then as {again!r}. "
            "Begin it with fresh fakes, and let it return nothing that differs each time"
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
            remedy="Name a kill that a failure has named",
        )
    return Trials(outcome, len(calls), tuple(made), missed)


def choose(calls: Sequence[str], kills: int | None) -> Sequence[Kill]:
    """Return the kills to try at these calls: all, or as many as asked.

    Of fewer, those before a commit come first, where a body has acted and nothing is recorded; then those
    after one, then all others; what is too many of a sort is spread evenly.
    Raises UsageError when there is nothing to choose from.
    """
    if kills is not None and (type(kills) is not int or kills < 1):
        raise UsageError(
            f"kills={kills!r}", remedy="Give a number of kills, at least 1; without it, all are tried"
        )
    if not calls:
        raise UsageError("nothing was run in the sandbox", remedy="Run an agent: sandbox.run(agent, ...)")
    numbered = [(call, calls[: place + 1].count(call)) for place, call in enumerate(calls)]
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


def _tell(story: Story) -> tuple[Any, Sequence[str]]:
    with Sandbox() as sandbox:
        outcome = story(sandbox)
    return outcome, sandbox.calls


def _try(story: Story, kill: Kill, deaths: int, expected: Any) -> list[str]:
    sandbox = Sandbox(kill=kill, deaths=deaths)
    try:
        with sandbox:
            outcome = story(sandbox)
    except Exception as error:
        raise NotCrashproof(f"{told(sandbox, kill)}, the story raised {error!r}") from error
    if outcome != expected:
        raise NotCrashproof(
            f"{told(sandbox, kill)}, the story ended otherwise:\n"
            f"  without: {expected!r}\n  killed:  {outcome!r}"
        )
    return sandbox.kills


def told(sandbox: Sandbox, kill: Kill) -> str:
    """Say where a sandbox was killed, or was to be."""
    return f"killed {', then '.join(sandbox.kills) or f'nowhere: {kill} was not reached'}"
