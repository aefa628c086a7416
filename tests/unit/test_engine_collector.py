"""The collector of garbage while workers work."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ninelives.engine.worker.gc_tuning import THRESHOLD, at_ease


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_looks_less_often_until_the_last_worker_has_stopped() -> None:
    gc.set_threshold(700, 10, 10)
    with at_ease():
        with at_ease():
            assert gc.get_threshold()[0] == THRESHOLD
        assert gc.get_threshold()[0] == THRESHOLD
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("young", [0, THRESHOLD + 1])
def test_who_has_set_it_otherwise_is_left_alone(young: int) -> None:
    gc.set_threshold(young, 10, 10)
    with at_ease():
        assert gc.get_threshold() == (young, 10, 10)
    assert gc.get_threshold() == (young, 10, 10)


def test_who_sets_it_meanwhile_is_left_alone() -> None:
    gc.set_threshold(700, 10, 10)
    with at_ease():
        gc.set_threshold(900, 10, 10)
    assert gc.get_threshold() == (900, 10, 10)
