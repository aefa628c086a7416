"""Every rule that is switched off turns the judge red; without that it is green (test_edits)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.edits.judge import judge
from tests.edits.mutants import MUTANTS, SHOWN_BY
from tests.edits.pairs import Pair, pair_of, perform
from tests.edits.test_edits import PAIRS


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.usefixtures("declarations")
def test_a_rule_that_is_switched_off_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    if not any(judge(perform(pair)) for pair in _pairs(SHOWN_BY[name])):
        pytest.fail(f"{name} was not noticed")


def _pairs(edits: frozenset[str]) -> Iterator[Pair]:
    """Yield those of the pairs of test_edits in which one of some edits is made."""
    for seed in range(PAIRS):
        pair = pair_of(seed)
        if not edits or any(edits & set(version.edits) for version in pair.versions):
            yield pair
