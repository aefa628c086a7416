"""What a condition can name: the arguments of the call, and facts about the call and its run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, Final

from msgspec import UNSET, Struct

from ninelives.core.governance.verdicts import Call
from ninelives.governance.policy.language.conform import conformer
from ninelives.governance.policy.language.errors import Unanswerable, Unsound, did_you_mean
from ninelives.governance.policy.language.sorts import BOOL, COUNT, MOMENT, NONE, TEXT, Sort, Sorts, label

KINDS: Final = ("decision", "action", "read", "spawn", "compensation")
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LABELS: Final = Sort("labels")
ARGUMENTS: Final = Sort("arguments")
CALL: Final = Sort("call")
_FACTS: Final[Mapping[str, Sorts]] = {
    "agent": (TEXT,),
    "run": (TEXT,),
    "key": (TEXT,),
    "parent": (TEXT, NONE),
    "resumable": (BOOL,),
    "reads_only": (BOOL,),
    "depth": (COUNT,),
    "turn": (COUNT,),
}
NAMES: Final = (*_FACTS, "action", "kind", "labels", "taint", "now", "args", "call")
_OTHER_LANGUAGES: Final = {"true": "True", "false": "False", "null": "None", "none": "None", "nil": "None"}
SpentReader = Callable[[str, Call], float]
"""Returns the share of a budget, by its name, that is used up for a call: 0.8 is four fifths of its limit."""
Run = Callable[[Any], Any]
"""Evaluates a part of a condition. Its argument is the call, or (the outer argument, an item) inside of
`any(...)` and `all(...)`.
"""


class Typed(Struct, frozen=True, eq=False):
    """A part of a condition: its sorts, and the function that evaluates it.

    `lenient` is the same for what may be absent, and gives None then. `constant` is its value, if it is
    written in the rule; `argument` is the one that it reads, if it is an argument of the call itself.
    """

    text: str
    sorts: Sorts
    run: Run
    constant: Any = UNSET
    lenient: Run | None = None
    argument: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it is written in the rule."""
        return self.constant is not UNSET


class Scope:
    """What one condition can name when it judges one action; `used` are the names that it does name."""

    def __init__(
        self,
        action: str,
        arguments: Mapping[str, Sorts],
        *,
        actions: tuple[str, ...] = (),
        budgets: frozenset[str] = frozenset(),
        zone: tzinfo,
        spent: SpentReader,
    ) -> None:
        self.action, self.arguments, self.actions = action, arguments, actions
        self.budgets, self.zone, self.spent = budgets, zone, spent
        self.used: dict[str, Sorts | None] = {}
        self.variables: list[tuple[str, Sorts]] = []

    def name(self, name: str) -> Typed:
        """Return what a bare name means. Raises Unsound."""
        for level, (variable, sorts) in enumerate(self.variables):
            if variable == name:
                return self._item(name, sorts, level)
        self.used[name] = self.arguments.get(name)
        if name in self.arguments:
            if name in NAMES:
                remedy = f"Write args.{name} for the argument, or call.{name} for the fact"
                raise Unsound(f"{name!r} is an argument of {self.action!r} and a fact of the call", remedy)
            return self.argument(name)
        if name in NAMES:
            return self.fact(name)
        what = f"{name!r} is no argument of {self.action!r} and no fact of the call"
        if name in _OTHER_LANGUAGES:
            raise Unsound(what, f"Write {_OTHER_LANGUAGES[name]}")
        nearest = did_you_mean(name, self.arguments, "Its arguments are")
        is_fact = nearest.startswith("Its") and did_you_mean(name, NAMES, "").startswith("Did")
        raise Unsound(what, did_you_mean(name, NAMES, "") if is_fact else nearest)

    def argument(self, name: str) -> Typed:
        """Return what `args.name` means. Raises Unsound."""
        sorts = self.used[name] = self.arguments.get(name)
        if sorts is None:
            remedy = did_you_mean(name, self.arguments, "Its arguments are")
            raise Unsound(f"{name!r} is no argument of {self.action!r}", remedy)
        conform = conformer(sorts, f"the argument {name!r}")

        def read(call: Any) -> Any:
            try:
                value = call.args[name]
            except KeyError:
                raise Unanswerable(f"the call has no argument {name!r}") from None
            return conform(value)

        return Typed(name, sorts, self._outer(read), argument="" if self.variables else name)

    def fact(self, name: str) -> Typed:
        """Return what `call.name` means. Raises Unsound."""
        if name in _FACTS:
            conform, get = conformer(_FACTS[name], name), operator.attrgetter(name)
            return Typed(name, _FACTS[name], self._outer(lambda call: conform(get(call))))
        if name in ("action", "kind"):
            conform, get = conformer((TEXT,), name), operator.attrgetter(name)
            sort = Sort("text", values=KINDS if name == "kind" else self.actions)
            return Typed(name, (sort,), self._outer(lambda call: conform(get(call))))
        if name == "now":
            return Typed(name, (MOMENT,), self._outer(self._now()))
        if name == "taint":
            tainted = Sort("list", items=(TEXT,))
            conform = conformer((tainted,), "taint")
            return Typed(name, (tainted,), self._outer(lambda call: conform(call.taint)))
        whole = {"labels": LABELS, "args": ARGUMENTS, "call": CALL}.get(name)
        if whole is None:
            raise Unsound(f"{name!r} is no fact of the call", did_you_mean(name, NAMES, "The facts are"))
        return Typed(name, (whole,), self._outer(operator.attrgetter("labels")))

    def a_label(self, name: str) -> Typed:
        """Return what `labels.name` means: a run without that label makes the rule unanswerable."""
        conform = conformer((TEXT,), f"the label {name!r}")

        def read(call: Any) -> Any:
            value = call.labels.get(name)
            if value is None:
                raise Unanswerable(f"the run has no label {name!r}")
            return conform(value)

        return Typed(
            f"labels.{name}",
            (TEXT,),
            self._outer(read),
            lenient=self._outer(lambda call: call.labels.get(name)),
        )

    def spent_of(self, budget: str) -> Run:
        """Return the function that reads how much of a budget is used up. Raises Unsound."""
        if budget not in self.budgets:
            remedy = did_you_mean(budget, self.budgets, "Budgets of this file")
            raise Unsound(f"the file has no budget {budget!r}", remedy)
        spent, conform = self.spent, conformer((Sort("float", float),), f"spent({budget!r})")
        return self._outer(lambda call: conform(spent(budget, call)))

    def _now(self) -> Run:
        zone, conform = self.zone, conformer((MOMENT,), "now")
        return lambda call: conform(call.now).astimezone(zone)

    def _outer(self, read: Run) -> Run:
        """Return the function for use inside of `any(...)` and `all(...)`, where the call is further out."""
        levels = len(self.variables)
        if not levels:
            return read

        def climb(inner: Any) -> Any:
            for _ in range(levels):
                inner = inner[0]
            return read(inner)

        return climb

    def _item(self, name: str, sorts: Sorts, level: int) -> Typed:
        conform, up = conformer(sorts, f"{name!r} ({label(sorts)})"), len(self.variables) - 1 - level

        def read(inner: Any) -> Any:
            for _ in range(up):
                inner = inner[0]
            return conform(inner[1])

        return Typed(name, sorts, read)
