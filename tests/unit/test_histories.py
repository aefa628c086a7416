"""Chat histories: each call one result, in its place; in three shapes."""

from __future__ import annotations

from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.journal.chat_history import UNKNOWN, Result, calls_in, repaired


def chat_call(*ids: str) -> dict[str, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "look", "arguments": '{"what": 1}'}}
        for one in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(id: str, text: str = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def use(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": one, "name": "look", "input": {"what": 1}} for one in ids]
    return {"role": "assistant", "content": [{"type": "text", "text": "hm"}, *blocks]}


def used(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [used_block(one) for one in ids]}


def used_block(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "seen"}


USER = {"role": "user", "content": "hello"}
LOST = {"type": "tool_result", "tool_use_id": "a", "content": UNKNOWN, "is_error": True}
ITEM = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "seen"}

WHOLE = [
    [],
    [USER],
    [USER, chat_call("a", "b"), chat_result("a"), chat_result("b"), USER],
    [USER, use("a", "b"), used("a", "b"), USER],
    [USER, ITEM, OUTPUT],
]


@pytest.mark.parametrize("messages", WHOLE)
def test_a_whole_history_stays_as_it_is(messages: list[dict[str, Any]]) -> None:
    assert repaired(messages, {}) == messages
    assert all(call.has_result for call in calls_in(messages))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([chat_call("a")], [chat_call("a"), chat_result("a", UNKNOWN)]),
        (
            [chat_call("a", "b"), chat_result("b"), USER],
            [chat_call("a", "b"), chat_result("a", UNKNOWN), chat_result("b"), USER],
        ),
        ([chat_call("a"), USER, chat_result("a")], [chat_call("a"), chat_result("a"), USER]),
        ([chat_result("z"), USER], [USER]),
        ([chat_result("a"), chat_call("a")], [chat_call("a"), chat_result("a", UNKNOWN)]),
        ([chat_call("a"), chat_result("a"), chat_result("a", "2")], [chat_call("a"), chat_result("a")]),
        ([use("a")], [use("a"), {"role": "user", "content": [LOST]}]),
        (
            [use("a"), USER],
            [use("a"), {"role": "user", "content": [LOST, {"type": "text", "text": "hello"}]}],
        ),
        (
            [use("a", "b"), used("b"), USER],
            [use("a", "b"), {"role": "user", "content": [LOST, used_block("b")]}, USER],
        ),
        (
            [use("a"), use("b"), used("b")],
            [use("a"), {"role": "user", "content": [LOST]}, use("b"), used("b")],
        ),
        ([used("z"), USER], [USER]),
        ([ITEM, USER], [ITEM, {**OUTPUT, "output": UNKNOWN}, USER]),
        ([OUTPUT, USER], [USER]),
    ],
)
def test_what_is_missing_is_put_in_and_what_is_orphaned_is_dropped(
    messages: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert repaired(messages, {}) == expected
    assert repaired(expected, {}) == expected


def test_a_known_result_is_put_in() -> None:
    found = {"a": Result("42"), "b": Result("broke", is_error=True)}
    assert repaired([chat_call("a")], found)[1] == chat_result("a", "42")
    (_, message) = repaired([use("a", "b")], found)
    assert message["content"][0] == {"type": "tool_result", "tool_use_id": "a", "content": "42"}
    assert message["content"][1]["is_error"] is True


def test_nothing_that_was_given_is_changed() -> None:
    messages = [use("a"), {"role": "user", "content": [used_block("z"), {"type": "text", "text": "x"}]}]
    before = repr(messages)
    repaired(messages, {})
    assert repr(messages) == before


def test_calls_are_read_with_their_arguments() -> None:
    calls = calls_in([chat_call("a"), use("b"), {**ITEM, "call_id": "c", "arguments": "not JSON"}])
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("a", "look", {"what": 1}),
        ("b", "look", {"what": 1}),
        ("c", "look", None),
    ]


@pytest.mark.parametrize("bad", [["hello"], [object()], [{"role": "assistant", "tool_calls": [{}]}]])
def test_what_is_no_history_is_refused_with_its_place(bad: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"messages\[0\]"):
        repaired(bad, {})
