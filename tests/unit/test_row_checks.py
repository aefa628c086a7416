"""Which columns of a run's row its two checks are made of."""

from __future__ import annotations

from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.queries import COLUMNS


def test_both_checks_are_made_of_the_columns_that_are_listed_for_them() -> None:
    assert tuple(checks.cold_of(COLUMNS["run"])) == COLUMNS["runs"]
    assert checks.hot_of(COLUMNS["run"]) == COLUMNS["hot"]
    assert set(COLUMNS["runs"]) | set(COLUMNS["hot"]) == set(COLUMNS["run"])
