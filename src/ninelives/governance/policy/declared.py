"""What a process declares: the steps and agents that rules name, with the sorts of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from ninelives.core.model.run import StepKind
from ninelives.core.values.codec import Codec, codec_for
from ninelives.engine.spec.registry import AGENTS, STEPS, Agent, Step, annotated, find_step
from ninelives.governance.policy.language.sorts import Sort, Sorts, sorts_of

SPAWN: Final = "spawn"
_OF_STEPS: Final = {
    StepKind.DECISION: ("decision", "compensation"),
    StepKind.READ: ("read", "compensation"),
    StepKind.ACTION: ("action", "compensation"),
}
Declaration = Step | Agent


class DeclaredAction(Struct, frozen=True, eq=False):
    """A step or an agent: its name, the kinds of calls of it, and its parameters with their annotations."""

    name: str
    kinds: tuple[str, ...]
    signature: inspect.Signature
    sorts: Mapping[str, Sorts]

    def codec(self, argument: str) -> Codec:
        """Return the codec of an argument's values. Raises UsageError if they cannot be stored."""
        annotation = self.signature.parameters[argument].annotation
        return codec_for(annotated(annotation), where=f"{self.name}({argument})")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments that a rule can read."""
        return tuple(self.sorts)


def declaration(one: Declaration) -> DeclaredAction:
    """Return what rules need to know of a step or an agent."""
    kinds = (SPAWN,) if isinstance(one, Agent) else _OF_STEPS[one.kind]
    parameters = list(one.signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    return DeclaredAction(one.name, kinds, one.signature, {each.name: _sorts(each) for each in parameters})


def _sorts(parameter: inspect.Parameter) -> Sorts:
    sorts = sorts_of(parameter.annotation)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return (Sort("list", items=sorts),)
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return (Sort("dict", items=sorts),)
    # A default may be what the annotation does not say: `limit: int = None`.
    if parameter.default is None and not any(sort.name in ("none", "any") for sort in sorts):
        return (*sorts, *sorts_of(None))
    return sorts


class Declarations:
    """All that a process declares, by name and kind; what is declared later is found too."""

    def __init__(self, steps: Iterable[Declaration] | None = None) -> None:
        self._is_open = steps is None
        self._known: dict[tuple[str, str], DeclaredAction] = {}
        given = of_this_process() if steps is None else list(steps)
        self.steps = tuple(one for one in given if isinstance(one, Step))
        for one in given:
            self._add(declaration(one))

    def __iter__(self) -> Any:
        return iter(dict.fromkeys(self._known.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all steps and agents."""
        return tuple(dict.fromkeys(name for name, _ in self._known))

    def find(self, name: str, kind: str) -> DeclaredAction | None:
        """Return what a call is of; None if this process does not declare it."""
        found = self._known.get((name, kind))
        if found is None and self._is_open:
            later: Declaration | None = AGENTS.get(name) if kind == SPAWN else find_step(name)
            if later is not None:
                self._add(declaration(later))
                found = self._known.get((name, kind))
        return found

    def _add(self, one: DeclaredAction) -> None:
        for kind in one.kinds:
            self._known[one.name, kind] = one


def of_this_process() -> list[Declaration]:
    """Return the steps and agents that this process has declared."""
    steps = [step for name in list(STEPS) if (step := find_step(name)) is not None]
    return [*steps, *AGENTS.values()]
