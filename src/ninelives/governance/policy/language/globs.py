"""Patterns with `*` (any text) and `?` (one character), in time that grows only with text times pattern."""

from __future__ import annotations

from functools import lru_cache

WILD = "*?"


def is_glob(pattern: str) -> bool:
    """Return whether a text has wildcards."""
    return any(mark in pattern for mark in WILD)


def fits(text: str, pattern: str) -> bool:
    """Return whether the whole text fits the pattern; upper and lower case differ."""
    first, *rest = _parts(pattern)
    if not rest:
        return len(text) == len(first) and _at(text, 0, first)
    last = rest.pop()
    if len(text) < len(first) + len(last) or not _at(text, 0, first):
        return False
    begin, end = len(first), len(text) - len(last)
    if not _at(text, end, last):
        return False
    # The earliest fit of each part leaves the most room for those after it: no search goes back.
    for part in rest:
        begin = _find(text, part, begin, end)
        if begin < 0:
            return False
        begin += len(part)
    return True


@lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))


def _at(text: str, begin: int, part: str) -> bool:
    if "?" not in part:
        return text.startswith(part, begin)
    return all(mark in ("?", text[begin + at]) for at, mark in enumerate(part))


def _find(text: str, part: str, begin: int, end: int) -> int:
    if "?" not in part:
        return text.find(part, begin, end)
    return next((at for at in range(begin, end - len(part) + 1) if _at(text, at, part)), -1)
