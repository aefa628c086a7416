"""Long lists in parts: what goes in comes out, and a longer one stores only what is new."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ninelives.core.values import lists

encode = msgspec.json.encode


def round_trip(data: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    kept, made = lists.split(data)
    if not made:
        return kept, made  # who keeps it knows that it is whole
    joined, used = lists.join(kept, lambda names: {name: made[name] for name in names})
    assert used == set(made)
    return joined, made


def conversation(length: int, text: str) -> bytes:
    return encode([{"role": "user", "content": f"{text} {number} " + "x" * 1000} for number in range(length)])


@pytest.mark.parametrize(
    "text", ["hello", "$5 are missing", '"$', '{"$parts":', "$", '{"$":"tuple"}', "\\", '\\"$parts\\":']
)
def test_whatever_a_message_says_a_longer_conversation_stores_only_what_is_new(text: str) -> None:
    shorter, longer = conversation(60, text), conversation(64, text)
    assert round_trip(shorter)[0] == shorter
    joined, made = round_trip(longer)
    assert joined == longer
    new = made.keys() - round_trip(shorter)[1].keys()
    assert 0 < sum(len(made[name]) for name in new) < 8_000


def test_what_looks_like_our_marks_is_kept_whole() -> None:
    lookalikes: list[object] = [
        {"$parts": list(range(3000))},
        [{"$parts": {}}] * 1000,
        {"a": {"$parts": 1}, "b": [0] * 3000},
    ]
    for value in lookalikes:
        data = encode(value)
        assert lists.split(data) == (data, {})


leaves = some.none() | some.integers() | some.sampled_from(["", "$", "$parts", '{"$parts":', "x" * 900])
values = some.recursive(
    leaves,
    lambda inner: (
        some.lists(inner, max_size=9) | some.dictionaries(some.sampled_from(["$", "$parts", "a", "v"]), inner)
    ),
    max_leaves=40,
)


@given(values)
def test_every_value_comes_back_byte_by_byte(value: object) -> None:
    data = encode(value)
    assert round_trip(data)[0] == data
