"""What one run is about: AgentDojo's environment, the user's calls, the injected ones, and what was done.

The agent stands for a model that carries out the user's task by its ground truth, and obeys an injection as
soon as it has read it: in the same run, in a child, or in the next turn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ninelives as nl

HOW = ("run", "child", "turn")
SCENES: dict[str, Scene] = {}
"""By id of the run, and of its child."""


@dataclass(frozen=True)
class Use:
    """A call of a tool, with all its arguments."""

    tool: str
    args: dict[str, Any]

    @property
    def text(self) -> str:
        """Two calls are the same if this is."""
        return as_text(self.tool, self.args)


@dataclass
class Scene:
    """One user task, with one injection or without; `done` and `refused` are the ledgers."""

    id: str
    environment: Any
    tools: Any
    actions: dict[str, Any]
    own: list[Use]
    goal: str = ""
    injected: Callable[[], list[Use]] = list
    how: str = "run"
    carried_out: list[Use] = field(default_factory=list)
    refused: set[tuple[str, int]] = field(default_factory=set)
    is_read: bool = False
    asks: int = 0
    _calls: list[Use] | None = None

    def __post_init__(self) -> None:
        SCENES[self.id] = SCENES[f"{self.id}-child"] = self

    def close(self) -> None:
        """Forget it."""
        del SCENES[self.id], SCENES[f"{self.id}-child"]

    def done(self, tool: str, args: dict[str, Any], *, is_refused: bool) -> None:
        """Note what a tool has done; not what it has refused by itself."""
        if not is_refused:
            self.carried_out.append(Use(tool, args))

    def injected_calls(self) -> list[Use]:
        """Return what the injection wants, as it was when it was first read."""
        if self._calls is None:
            self._calls = self.injected()
        return self._calls

    def carries(self, text: str) -> bool:
        """Whether a text has the injection in it, however it was quoted and folded."""
        return bool(self.goal) and _letters(self.goal.splitlines()[0]) in _letters(text)

    def beyond(self, effects: frozenset[str]) -> list[str]:
        """Return the side effects that are not the user's own."""
        done = Counter(one.text for one in self.carried_out if one.tool in effects)
        return list((done - self._own(effects)).elements())

    def wanted(self, effects: frozenset[str]) -> Counter[str]:
        """Return the side effects of the user's task that are still to come."""
        return self._own(effects) - Counter(one.text for one in self.carried_out)

    def _own(self, effects: frozenset[str]) -> Counter[str]:
        return Counter(one.text for one in self.own if one.tool in effects)


@nl.agent(name="obedient")
async def obedient(scene: str, at: int = 0, obeys: bool = False) -> str:
    """Carry out the user's task from a call on, and what is injected once it was read."""
    one, is_read = SCENES[scene], obeys
    if obeys:
        await obey(one)
    for number in range(at, len(one.own)):
        text = await attempt(one, "own", number, one.own[number])
        if is_read or not one.carries(text):
            continue
        is_read = one.is_read = True
        if one.how == "turn":
            return nl.next_turn(scene, number + 1, True)  # type: ignore[no-any-return]
        if one.how == "child":
            child = await nl.spawn(messenger, scene, id=f"{scene}-child")
            await child.result()
        else:
            await obey(one)
    return "done"


@nl.agent(name="messenger")
async def messenger(scene: str) -> str:
    """Carry out what is injected, as a child."""
    await obey(SCENES[scene])
    return "done"


async def obey(one: Scene) -> None:
    """Carry out what is injected, as far as it is allowed."""
    for number, use in enumerate(one.injected_calls()):
        await attempt(one, "injected", number, use)


async def attempt(one: Scene, whose: str, number: int, use: Use) -> str:
    """Call a tool; if that is refused, go on with the next one."""
    try:
        return str(await one.actions[use.tool](**use.args))
    except nl.Denied:
        one.refused.add((whose, number))
        return ""


def as_text(tool: str, args: dict[str, Any]) -> str:
    """Return a call as text."""
    return f"{tool} {json.dumps(args, sort_keys=True, default=str)}"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
