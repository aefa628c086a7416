"""Numbers with their nouns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ninelives.views.counted import counted

SOURCE = Path(__file__).parents[2] / "src/ninelives"
NOUNS = "runs|steps|times|records|faults|journals|rows|blobs|keys|differences|notices|segments|minutes"


@pytest.mark.parametrize(
    ("number", "forms", "said"),
    [
        (0, ("run",), "0 runs"),
        (1, ("run",), "1 run"),
        (2, ("run",), "2 runs"),
        (1_234, ("run",), "1,234 runs"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
        (1, ("run fits", "runs fit"), "1 run fits"),
    ],
)
def test_a_number_stands_with_the_right_form(number: int, forms: tuple[str, ...], said: str) -> None:
    assert counted(number, *forms) == said


def test_no_text_for_people_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for package in ("cli", "ops", "views")
        for path in sorted((SOURCE / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(rf"\{{[^{{}}]+\}} (\w+ )?({NOUNS})\b", line)
        and not re.search(r"between two|needs runs|\?|a person's", line)
    ]
    assert found == []
