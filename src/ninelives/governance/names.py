"""The names of actions and agents in tables of a policy file: exact, or with * and ?."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from ninelives.core.errors import UsageError
from ninelives.engine.spec.registry import AGENTS


def fits_one(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_names(where: str, patterns: Iterable[str], known: Collection[str] | None) -> None:
    """Raise UsageError for a pattern that no known step fits: it would protect nothing.

    `known` are the declared steps, and those that the file says other processes declare; None: unknown.
    """
    for pattern in patterns if known is not None else ():
        if not any(fnmatchcase(name, pattern) for name in known or ()):
            raise UsageError(f"{where} names {pattern!r}, and no step is called so", remedy=none_named(known))


def none_named(known: Collection[str] | None) -> str:
    """Return what to do about a name that no step has."""
    return (
        f"There are: {', '.join(sorted(known or ())) or 'none'}. "
        'If another process declares it, add it to elsewhere = ["..."] of [policy]'
    )


def check_agents(where: str, patterns: Iterable[str]) -> None:
    """Raise UsageError for a pattern that no declared agent fits; "*" fits all that may come."""
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in AGENTS):
            raise UsageError(
                f"{where} names {pattern!r}, and no agent is called so",
                remedy=f"There are: {', '.join(sorted(AGENTS)) or 'none'}",
            )


def names_role(to: str) -> bool:
    """Return whether `to` names a role, rightly written or not: it is never a person that need not sign."""
    kind, colon, _ = to.partition(":")
    return bool(colon) and kind.strip().casefold() == "role"
