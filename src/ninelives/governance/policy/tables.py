"""The other tables of a policy file, and the function of their owner that checks each.

An owner is imported when a file has its table. Its `check` raises UsageError for a key, an action or a type
that it does not know. A table that no owner knows is an error: what looks like a limit must be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.engine.spec.registry import Step
from ninelives.governance.policy.file import PolicySpec
from ninelives.governance.policy.language.errors import did_you_mean


class Owner(Struct, frozen=True):
    """The module whose `check(table, ...)` checks a table, and what that takes beside the table."""

    module: str
    takes: tuple[str, ...] = ()


OWNERS: Final[Mapping[str, Owner]] = {
    "budget": Owner("ninelives.governance.budgets.declarations", ("steps", "names")),
    "trip": Owner("ninelives.governance.trips", ("names",)),
    "breaker": Owner("ninelives.governance.breakers", ("names",)),
    "limit": Owner("ninelives.governance.limits", ("names",)),
    "approvers": Owner("ninelives.governance.approvers.approvers", ("where",)),
}


def check_tables(spec: PolicySpec, steps: Sequence[Step] | None) -> Iterator[UsageError]:
    """Yield what is wrong with the tables that are not rules; names of actions only if steps are given."""
    names = None if steps is None else {*(step.name for step in steps), *spec.elsewhere}
    for name, table in spec.tables.items():
        at, owner = spec.lines.of_table(name), OWNERS.get(name)
        if owner is None:
            remedy = did_you_mean(name, ("policy", "rule", "test", *OWNERS), "Tables are")
            yield spec.lines.error(at, f"unknown table {name!r}", remedy)
            continue
        try:
            check = import_module(owner.module).check
        except ModuleNotFoundError as error:
            if not f"{owner.module}.".startswith(f"{error.name}."):
                raise
            what = f"this version of ninelives knows no table {name!r}"
            yield spec.lines.error(at, what, "Remove it, or upgrade ninelives")
            continue
        given: dict[str, Any] = {"steps": steps, "where": spec.directory, "names": names}
        try:
            check(table, **{name: one for name, one in given.items() if name in owner.takes})
        except UsageError as error:
            yield spec.lines.error(at, error.what, error.remedy or "Correct the table")


def budgets_of(spec: PolicySpec) -> frozenset[str]:
    """Return the names of the budgets of a file, which conditions may read by `spent(...)`."""
    found: Any = spec.tables.get("budget", [])
    rows = found if isinstance(found, list) else []
    names = (one.get("name") for one in rows if isinstance(one, dict))
    return frozenset(name for name in names if isinstance(name, str))
