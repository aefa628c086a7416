"""The names of actions and agents in tables of a policy file: exact, or with * and ?."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ninelives.core.errors import UsageError
from ninelives.engine.spec.registry import AGENTS, STEPS


def fits_one(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_names(where: str, patterns: Iterable[str]) -> None:
    """Raise UsageError for a pattern that no declared step fits: it would protect nothing."""
    _check(where, patterns, "step", STEPS)


def check_agents(where: str, patterns: Iterable[str]) -> None:
    """Raise UsageError for a pattern that no declared agent fits; "*" fits all that may come."""
    _check(where, (one for one in patterns if one != "*"), "agent", AGENTS)


def _check(where: str, patterns: Iterable[str], what: str, known: Iterable[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UsageError(
                f"{where} names {pattern!r}, and no {what} is called so",
                remedy=f"There are: {', '.join(sorted(known)) or 'none'}",
            )


def names_role(to: str) -> bool:
    """Return whether `to` names a role, rightly written or not: it is never a person that need not sign."""
    kind, colon, _ = to.partition(":")
    return bool(colon) and kind.strip().casefold() == "role"
