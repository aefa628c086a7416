"""The names of actions in tables of a policy file: exact, or with * and ?."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ninelives.core.errors import UsageError
from ninelives.engine.spec.registry import STEPS


def fits_one(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_names(where: str, patterns: Iterable[str]) -> None:
    """Raise UsageError for a pattern that no declared step fits: it would protect nothing."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in STEPS):
            raise UsageError(
                f"{where} names {pattern!r}, and no step is called so",
                remedy=f"There are: {', '.join(sorted(STEPS)) or 'none'}",
            )
