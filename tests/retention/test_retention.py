"""The short form: some seconds of load with kills, and the store's size is flat."""

from __future__ import annotations

from pathlib import Path

from tests.retention.load import Sizes, measure


def growth_of(sizes: Sizes) -> float:
    """Return how much larger the store is at its largest in the last third than in the second."""
    third = len(sizes.bytes) // 3
    return max(sizes.bytes[2 * third :]) / max(sizes.bytes[third : 2 * third])


def test_a_store_under_load_with_retention_stays_as_large_as_it_is(tmp_path: Path) -> None:
    sizes = measure(tmp_path, 12)
    assert sizes.runs > 50
    assert sizes.journals > sizes.runs / 2
    assert sizes.entries > 0
    assert growth_of(sizes) < 1.35, sizes.bytes
