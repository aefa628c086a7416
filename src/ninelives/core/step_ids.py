"""The text form of a step id: `branch#name#count`.

Error messages need this much of `ids`, and `ids` raises errors; so this module imports neither, and raises
nothing. `ids` adds the checks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

MAX_COUNT: Final = 2**63 - 1
_COUNT: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class StepId(NamedTuple):
    """The position of a step in a turn: its branch, its name, and the count of that name in the branch."""

    branch: str
    name: str
    n: int


def write_step_id(branch: str, name: str, n: int) -> str:
    """Write a step id as one readable text. Does not check the count."""
    return f"{_escape(branch) if branch else branch}#{_escape(name)}#{n}"


def read_step_id(text: str) -> StepId | None:
    """Read what `write_step_id` wrote; None for any other text."""
    parts = text.split("#")
    if len(parts) != 3 or not _COUNT.fullmatch(parts[2]):
        return None
    found = StepId(_unescape(parts[0]), _unescape(parts[1]), int(parts[2]))
    # Compare with what we would write: other spellings of the same id ("a#b#01") are refused.
    return found if found.n <= MAX_COUNT and write_step_id(*found) == text else None


def step_text(step: str) -> str:
    """Name a step for people: name[count], after its branch if it has one; other text unchanged."""
    found = read_step_id(step)
    if found is None:
        return step
    branch, name, number = found
    return f"{branch}/{name}[{number}]" if branch else f"{name}[{number}]"


@lru_cache(maxsize=1024)
def _escape(text: str) -> str:
    # The percent sign first: else the escape of # would be escaped again.
    return text.replace("%", "%25").replace("#", "%23")


def _unescape(text: str) -> str:
    return text.replace("%23", "#").replace("%25", "%")
