"""Refusals at load, and rules that cannot be evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches


class Unsound(Exception):
    """A condition is not accepted. `node` is the part of it that is at fault."""

    def __init__(self, what: str, remedy: str = "", node: ast.AST | None = None) -> None:
        super().__init__(what)
        self.what, self.remedy, self.node = what, remedy, node


class Unanswerable(Exception):
    """A condition has no answer for this call: a value is absent, or is not what its annotation says.

    Its text names types and arguments, never a value: it is recorded and shown.
    """


class NotStored:
    """Stands for a value that a journal did not keep: any condition that reads it is unanswerable."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what


class Unstored(Unanswerable):
    """A condition reads something that was not stored of a call of the past."""


def did_you_mean(word: str, known: Iterable[str], what: str) -> str:
    """Return a remedy for an unknown word: the nearest known one, or all of them."""
    names = sorted(known)
    near = get_close_matches(word, names, 1, 0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"{what}: {shown or 'none'}"
