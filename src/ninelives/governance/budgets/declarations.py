"""Declared budgets: the `[[budget]]` tables of policy files, checked strictly.

What could look stricter than it is is refused: an unknown key, a limit that no call could meet, a budget
that waits for a window it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.costs import METERS, SECONDS, TOKENS, USD, shown, whole
from ninelives.engine.spec.registry import Step
from ninelives.governance.budgets.account_names import SCOPES, is_label
from ninelives.governance.budgets.windows import NONE, PERIODS
from ninelives.governance.names import none_named

DENY, ESCALATE, WAIT = REACTIONS = ("deny", "escalate", "wait")
"""What becomes of a call that would pass a limit; the strictest comes first."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_KEYS = ("name", "scope", "per", *METERS, "on", "to", "only", "estimate")
ESTIMATED = (USD, TOKENS, SECONDS)


class Budget(Struct, frozen=True, kw_only=True):
    """A budget: of what, in which window, how much by meter, and what becomes of a call over it.

    `only` are patterns of the steps that it counts, empty for all. `estimate` is what a call reserves of a
    meter when nothing else says how much it may cost. `to` is asked when it escalates.
    """

    name: str
    scope: str
    per: str
    limits: dict[str, int]
    on: str
    to: str = ""
    only: tuple[str, ...] = ()
    estimate: dict[str, int] = {}

    def counts(self, step: str) -> bool:
        """Return whether calls of a step are charged to it."""
        return not self.only or any(fnmatchcase(step, pattern) for pattern in self.only)


def check(
    tables: object, steps: Iterable[Step] | None = None, names: Collection[str] | None = None
) -> tuple[Budget, ...]:
    """Return the budgets that tables declare.

    `steps` are the declared steps, and `names` those that steps may have, if they are known.

    Raises UsageError for anything that is unknown, of another type, or could not be meant; and for a step
    that a budget of money counts and whose calls could only be refused.
    """
    if not isinstance(tables, list):
        raise UsageError("budget is no list of tables", remedy="Write [[budget]], with two brackets")
    known = None if steps is None else tuple(steps)
    budgets = joined([_checked(number, table, names) for number, table in enumerate(tables, 1)])
    for step in known or ():
        for budget in budgets:
            _refuse_unpriced(budget, step)
    return budgets


def _refuse_unpriced(budget: Budget, step: Step) -> None:
    # What a decision may cost can still be found in its arguments; what an action costs cannot.
    says_nothing = step.cost is None and not step.is_decision
    if says_nothing and USD in budget.limits and USD not in budget.estimate and budget.counts(step.name):
        raise UsageError(
            f"budget {budget.name!r} counts dollars, and {step.name!r} does not say what it costs",
            remedy=f"Declare {step.name} with cost=; or give the budget only = [...] or "
            "estimate = { usd = ... }",
        )


def joined(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """Return budgets of several policies as one list. Raises UsageError when two have one name."""
    seen: set[str] = set()
    for one in budgets:
        if one.name in seen:
            raise UsageError(
                f"two budgets are named {one.name!r}: they would share their accounts",
                remedy="Give one of them another name",
            )
        seen.add(one.name)
    return tuple(budgets)


def _checked(number: int, table: object, names: Collection[str] | None) -> Budget:
    if not isinstance(table, dict):
        raise UsageError(f"budget {number} is no table", remedy="Write [[budget]], with two brackets")
    where = f"budget {table.get('name', number)!r}"
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{where} has the unknown key {key!r}", remedy=f"It may have {', '.join(_KEYS)}")
    name = _text(table, "name", where)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}: name = {name!r}",
            remedy="Use lower-case letters, digits, '.', '_' and '-', at most 60 of them",
        )
    scope = _text(table, "scope", where)
    if scope not in SCOPES and not is_label(scope):
        raise UsageError(f"{where}: scope = {scope!r}", remedy=f"It is {', '.join(SCOPES)} or label:NAME")
    on = _one_of(table, "on", DENY, REACTIONS, where)
    made = Budget(
        name=name,
        scope=scope,
        per=_one_of(table, "per", NONE, PERIODS, where),
        limits={meter: _amount(meter, table[meter], where) for meter in METERS if meter in table},
        on=on,
        to=_text(table, "to", where) if "to" in table else "",
        only=_patterns(table.get("only"), names, where),
        estimate=_estimate(table.get("estimate"), where),
    )
    _refuse_nonsense(made, where)
    return made


def _refuse_nonsense(made: Budget, where: str) -> None:
    if not made.limits:
        raise UsageError(f"{where} limits nothing", remedy=f"Give it one of {', '.join(METERS)}")
    for meter, limit in made.limits.items():
        if not limit:
            raise UsageError(
                f"{where}: {meter} = 0",
                remedy='Give more than 0; what may never happen is a rule with do = "deny"',
            )
    if made.on == WAIT and made.per == NONE:
        raise UsageError(
            f'{where} has on = "wait" and no window: it would wait without end',
            remedy='Give it per = "minute", "hour", "day" or "month"; or on = "escalate"',
        )
    if made.to and made.on != ESCALATE:
        raise UsageError(f"{where} has to = {made.to!r} and asks no person", remedy='Give it on = "escalate"')
    for meter, amount in made.estimate.items():
        limit = made.limits.get(meter, 0)
        if meter not in made.limits:
            raise UsageError(
                f"{where} estimates {meter} and does not limit them", remedy=f"Leave out {meter} of estimate"
            )
        if amount > limit:
            raise UsageError(
                f"{where} has {shown(meter, limit)}, and estimates {shown(meter, amount)} for each call",
                remedy="No call could ever begin: raise the limit, or lower the estimate",
            )


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    if key not in table:
        raise UsageError(f"{where} has no {key}", remedy=f"Every budget needs {key} =")
    value = table[key]
    if not isinstance(value, str) or not value or value != value.strip():
        raise UsageError(f"{where}: {key} = {value!r}", remedy="Give a text")
    return value


def _one_of(table: Mapping[str, Any], key: str, default: str, known: Sequence[str], where: str) -> str:
    value = table.get(key, default)
    if value not in known:
        raise UsageError(f"{where}: {key} = {value!r}", remedy=f"It is one of {', '.join(known)}")
    return str(value)


def _amount(meter: str, value: object, where: str) -> int:
    try:
        return whole(meter, value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.what}", remedy=error.remedy) from None


def _estimate(value: object, where: str) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not value:
        raise UsageError(f"{where}: estimate = {value!r}", remedy="Write estimate = { usd = 0.05 }")
    for meter in value:
        if meter not in ESTIMATED:
            raise UsageError(
                f"{where}: estimate of {meter!r}", remedy=f"It estimates one of {', '.join(ESTIMATED)}"
            )
    return {meter: _amount(meter, amount, f"{where}, estimate") for meter, amount in value.items()}


def _patterns(value: object, names: Collection[str] | None, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise UsageError(
            f"{where}: only = {value!r}", remedy='Give names of steps: only = ["ask", "search*"]'
        )
    for pattern in value:
        if names is not None and not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"{where}: no step is named {pattern!r}, so it would count nothing", remedy=none_named(names)
            )
    return tuple(value)
