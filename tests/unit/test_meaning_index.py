"""The nearest cached questions: with numpy and without, the same."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest

from ninelives.core.errors import UsageError
from ninelives.models.meaning_index import MeaningIndex, packed, unpacked

WAYS = [False, pytest.param(True, marks=pytest.mark.skipif(find_spec("numpy") is None, reason="no numpy"))]


@pytest.fixture(params=WAYS)
def index(request: pytest.FixtureRequest) -> MeaningIndex:
    return MeaningIndex(numpy=request.param)


def test_nothing_is_near_in_an_empty_index(index: MeaningIndex) -> None:
    assert index.nearest([1.0, 0.0]) == []


def test_the_nearest_come_first_whatever_their_lengths(index: MeaningIndex) -> None:
    index.add("far", "b", [0.0, 9.0])
    index.add("near", "a", [0.5, 0.1])
    index.add("back", "c", [-1.0, 0.0])
    found = index.nearest([70.0, 0.0])
    assert [one.entry for one in found] == ["near", "far", "back"]
    assert [round(one.similarity, 3) for one in found] == [0.981, 0.0, -1.0]


def test_a_model_of_the_whole_index_agrees(index: MeaningIndex) -> None:
    draws, kept = random.Random(11), dict[str, list[float]]()
    for _ in range(400):
        entry = f"e{draws.randrange(60)}"
        if draws.random() < 0.35:
            index.remove(entry)
            kept.pop(entry, None)
        else:
            kept[entry] = [draws.gauss(0, 1) for _ in range(6)]
            index.add(entry, entry.upper(), kept[entry])
        assert len(index) == len(kept)
    asked = [draws.gauss(0, 1) for _ in range(6)]
    expected = sorted(kept, key=lambda entry: -cosine(asked, kept[entry]))[:5]
    found = index.nearest(asked)
    assert [one.entry for one in found] == expected
    assert all(one.text == one.entry.upper() for one in found)
    assert [one.similarity for one in found] == pytest.approx(
        [cosine(asked, kept[entry]) for entry in expected], abs=1e-5
    )


def test_vectors_of_another_width_are_never_near_and_in_no_ones_way(index: MeaningIndex) -> None:
    index.add("one", "a", [1.0, 0.0])
    index.add("two", "b", [1.0, 0.0, 0.0])
    assert index.nearest([1.0]) == []
    assert [near.entry for near in index.nearest([1.0, 0.1])] == ["one"]
    assert [near.entry for near in index.nearest([1.0, 0.1, 0.0])] == ["two"]
    index.add("one", "a", [0.0, 1.0, 0.0])
    assert index.nearest([1.0, 0.1]) == []
    assert len(index) == 2


@pytest.mark.parametrize("vector", [[], [float("nan")], [float("inf"), 1.0]])
def test_what_is_no_vector_is_refused(index: MeaningIndex, vector: list[float]) -> None:
    with pytest.raises(UsageError, match="finite"):
        index.add("one", "a", vector)


def test_a_vector_of_zeros_is_near_to_nothing(index: MeaningIndex) -> None:
    index.add("zero", "a", [0.0, 0.0])
    assert index.nearest([1.0, 1.0])[0].similarity == 0.0


def test_a_packed_vector_is_the_same_direction() -> None:
    assert list(unpacked(packed([3.0, 4.0]))) == pytest.approx([0.6, 0.8])
    with pytest.raises(ValueError, match="not a multiple"):
        unpacked(b"abc")


def cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return float(product / (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5)
