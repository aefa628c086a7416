"""A list that grows has the fingerprint of the whole, whatever is remembered of it."""

from __future__ import annotations

import array
import copy
import enum
import inspect
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninelives.core.errors import NotSerializable
from ninelives.core.values import lists
from ninelives.core.values.fingerprint import taker
from ninelives.core.values.lists import Memory

TEXT = "a message of some length, with é and \n in it; " * 12


def answer(messages: Any, above: Any = None, zone: Any = None, *, more: Any = None) -> None: ...


TAKE = taker(inspect.signature(answer))


def check(memory: Memory, *args: Any, **kwargs: Any) -> bytes:
    """Take a fingerprint with what is remembered; it must be the one without."""
    found, whole = TAKE(args, kwargs, memory), TAKE(args, kwargs)
    assert found.digest == whole.digest
    assert found.preview() == whole.preview()
    return found.digest


def conversation(count: int) -> list[Any]:
    return [{"role": "user", "content": f"{number} {TEXT}", "n": number} for number in range(count)]


def test_grown_list_has_the_fingerprint_of_the_whole() -> None:
    memory: Memory = {}
    messages = conversation(8)
    seen = set()
    for number in range(20):
        seen.add(check(memory, messages))
        seen.add(check(memory, messages, above=number, zone="z", more=[1]))
        seen.add(check(memory, list(messages), zone=str(number)))
        messages.append(
            {"role": "assistant", "content": f"{number}", "calls": [{"id": number, "args": None}]}
        )
    assert len(seen) == 60
    assert any(one.count == 27 for one in memory.values())


@pytest.mark.parametrize("index", [0, 5, -1])
@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(content="other"),
        lambda one: one.update(n=float(one["n"])),
        lambda one: one.update(n=bool(one["n"])),
        lambda one: one.update(content=one["content"] + " "),
        lambda one: one.update({"$": "x"}),
        lambda one: one.update(content=(1, 2)),
        lambda one: one.update(m=one.pop("n")),
        lambda one: one.pop("role"),
        lambda one: one.clear(),
    ],
)
def test_message_changed_in_place_is_seen(index: int, change: Any) -> None:
    memory: Memory = {}
    messages = conversation(20)
    before = check(memory, messages)
    change(messages[index])
    assert check(memory, messages) != before
    messages.append("more")
    check(memory, messages)


@pytest.mark.parametrize("likeness", [bytearray, memoryview, lambda data: array.array("b", data)])
def test_what_only_looks_like_bytes_is_refused_though_bytes_were_seen(likeness: Any) -> None:
    memory: Memory = {}
    messages: list[Any] = [b"x" * 1000 for _ in range(10)]
    check(memory, messages)
    messages[3] = likeness(messages[3])
    with pytest.raises(NotSerializable):
        TAKE((messages,), {}, memory)


def test_message_that_is_merely_equal_is_another() -> None:
    class Role(enum.StrEnum):
        USER = "user"

    memory: Memory = {}
    messages = conversation(20)
    before = check(memory, messages)
    messages[3]["role"] = Role.USER
    assert check(memory, messages) != before


def test_shorter_and_reordered_lists_are_others() -> None:
    memory: Memory = {}
    messages = conversation(40)
    all_of_them = check(memory, messages)
    fewer = check(memory, messages[:-1])
    turned = check(memory, messages[:30] + messages[:29:-1])
    assert len({all_of_them, fewer, turned}) == 3
    assert check(memory, messages) == all_of_them


def test_what_is_refused_is_refused_at_its_place_in_the_whole_list() -> None:
    memory: Memory = {}
    messages = conversation(20)
    check(memory, messages)
    messages.append({"role": float("nan")})
    with pytest.raises(NotSerializable) as with_memory:
        TAKE((messages,), {}, memory)
    with pytest.raises(NotSerializable) as without:
        TAKE((messages,), {})
    assert with_memory.value.path == without.value.path
    assert "[20]" in str(with_memory.value.path)


def test_too_large_as_a_whole_is_refused_however_it_has_grown() -> None:
    memory: Memory = {}
    messages: list[Any] = ["\x01" * 400_000 for _ in range(6)] + [1, 2, 3]  # each six bytes long once encoded
    check(memory, messages, zone="x")
    with pytest.raises(NotSerializable, match="over the limit"):
        TAKE((messages,), {"zone": "x" * 5_000_000}, memory)


def test_few_lists_are_remembered() -> None:
    memory: Memory = {}
    for number in range(50):
        check(memory, [number, *conversation(20)])
    assert len(memory) <= 8


def test_known_items_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    add = lists.Grown.add

    def counting(self: lists.Grown, new: list[Any], dump: bytes, data: bytes) -> None:
        encoded.append(len(data))
        add(self, new, dump, data)

    monkeypatch.setattr(lists.Grown, "add", counting)
    memory: Memory = {}
    messages = conversation(50)
    for number in range(5):
        check(memory, copy.deepcopy(messages))
        messages.append({"n": number})
    assert encoded[0] > 20_000
    assert encoded[1:] == [len(b'{"n":0}')] * 4


def test_flat_messages_that_are_the_same_objects_are_not_even_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    dumped: list[int] = []
    monkeypatch.setattr(lists.Grown, "_was", lambda _, dump: dumped.append(len(dump)))
    memory: Memory = {}
    messages = conversation(50)
    for number in range(5):
        check(memory, messages)
        messages = [*messages, {"role": "assistant", "content": str(number)}]
    assert dumped == []


def test_value_that_moves_to_another_message_is_seen() -> None:
    memory: Memory = {}
    messages: list[Any] = [{"a": TEXT, "b": TEXT}, {"c": TEXT}] * 10
    messages = [dict(one) for one in messages]
    before = check(memory, messages)
    messages[1] = {"b": messages[0].pop("b"), **messages[1]}
    assert check(memory, messages) != before


def test_item_that_can_be_changed_within_is_compared_within() -> None:
    memory: Memory = {}
    messages = [*conversation(20), {"calls": [1]}]
    before = check(memory, messages)
    messages[-1]["calls"].append(2)
    after = check(memory, messages)
    messages[-1]["calls"].pop()
    assert check(memory, messages) == before != after


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
ITEMS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ITEMS, min_size=3, max_size=6), st.lists(ITEMS, max_size=3), ITEMS)
def test_any_lists_in_any_order(first: list[Any], then: list[Any], other: Any) -> None:
    memory: Memory = {}
    filled = [*conversation(10), *first]
    for messages in (filled, [*filled, *then], filled, [*filled, *then, other], [*filled, other, *then]):
        try:
            whole = TAKE((messages, other), {}).digest
        except NotSerializable:
            with pytest.raises(NotSerializable):
                TAKE((messages, other), {}, memory)
        else:
            assert TAKE((messages, other), {}, memory).digest == whole
