"""Numbers with their nouns: "1 run", "2 runs". No I/O, and nothing that could fail."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts; `many` is the form for other numbers than 1, by default with an s.

    Both may be more than a noun: `counted(n, "run fits", "runs fit")`.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
