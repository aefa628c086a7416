"""Repair chat histories: every tool call gets exactly one result, at the right position.

Every provider refuses a history in which a tool call has no result, or a result has no call, each time it is
sent. Pure: `calls_in` returns the calls and which of them lack a result; `repaired` inserts the results that
the caller knows. Three shapes are known: OpenAI's chat messages (`tool_calls`, role "tool"), its response
items (`function_call`, `function_call_output`) and Anthropic's content blocks (`tool_use`, `tool_result`).
Other messages pass unchanged. The input is never modified: what must differ is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.errors import UsageError

# This text reaches the arguments of later steps: changing it would diverge runs in flight.
UNKNOWN = "No result of this call was recorded: it is not known whether it was carried out."
Message = Mapping[str, Any]


class HistoryCall(Struct, frozen=True):
    """A tool call of a history; `arguments` are None when they are not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    has_result: bool


class Result(Struct, frozen=True):
    """The result of a tool call."""

    text: str
    is_error: bool = False


def calls_in(messages: Sequence[Message]) -> list[HistoryCall]:
    """Return all tool calls of a history, in order.

    Raises UsageError naming a message that is not a dict, or a call without an id.
    """
    found = list(_calls(messages))
    answered = {name for message in messages for name in _result_ids(message)}
    return [HistoryCall(call, name, arguments, call in answered) for call, name, arguments in found]


def repaired(messages: Sequence[Message], results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return the history with one result for each call, directly after it, and no result without a call.

    A result that came too late is moved up; a second one is dropped; a missing one is taken from `results`,
    by the call's id, or says that it is unknown.
    """
    list(_calls(messages))  # raises for what is no history, before anything else
    known = _results_by_call(messages)
    out: list[dict[str, Any]] = []
    pending: list[
        dict[str, Any]
    ] = []  # Anthropic's results, which belong at the head of the next user message
    for message in messages:
        rest = _without_results(message)
        if pending:
            if rest is not None and rest.get("role") == "user":
                rest = {**rest, "content": [*pending, *_blocks(rest.get("content"))]}
            else:
                out.append({"role": "user", "content": pending})
            pending = []
        if rest is None:
            continue
        out.append(rest)
        for call, shape in _calls_of(rest):
            given = known.get(call) or _made(shape, call, results.get(call) or Result(UNKNOWN, is_error=True))
            (pending if shape == "anthropic" else out).append(given)
    if pending:
        out.append({"role": "user", "content": pending})
    return out


# ------------------------------------------------------------------------------------------ reading


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise UsageError(
                f"a history is a list of dicts, not of {type(message).__name__}",
                path=f"messages[{number}]",
                remedy="Turn the provider's objects into dicts first: message.model_dump()",
            )
        for raw in _raw_calls(message):
            function = raw.get("function")
            named = function if isinstance(function, Mapping) else raw
            call = raw.get("call_id") if raw.get("type") == "function_call" else raw.get("id")
            if not isinstance(call, str) or not call:
                raise UsageError("a tool call has no id", path=f"messages[{number}]")
            arguments = raw.get("input") if raw.get("type") == "tool_use" else named.get("arguments")
            yield call, str(named.get("name") or ""), _object(arguments)


def _raw_calls(message: Message) -> list[Message]:
    if message.get("type") == "function_call":
        return [message]
    if message.get("role") != "assistant":
        return []
    calls = [one for one in message.get("tool_calls") or () if isinstance(one, Mapping)]
    return calls + [one for one in _blocks(message.get("content")) if one.get("type") == "tool_use"]


def _calls_of(message: Message) -> list[tuple[str, str]]:
    """Return the ids of a message's calls, and the shape that their results must have."""
    if message.get("type") == "function_call":
        return [(message["call_id"], "item")]
    return [
        (one["id"], "anthropic" if one.get("type") == "tool_use" else "chat") for one in _raw_calls(message)
    ]


def _object(arguments: Any) -> dict[str, Any] | None:
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError:
            return None
    return dict(arguments) if isinstance(arguments, Mapping) else None


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [one for one in content if isinstance(one, Mapping)] if isinstance(content, Sequence) else []


def _result_ids(message: Message) -> Iterator[str]:
    if message.get("role") == "tool":
        yield str(message.get("tool_call_id"))
    elif message.get("type") == "function_call_output":
        yield str(message.get("call_id"))
    elif message.get("role") == "user":
        for block in _blocks(message.get("content")):
            if block.get("type") == "tool_result":
                yield str(block.get("tool_use_id"))


def _results_by_call(messages: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return the results in a history, by call: the first that comes after its call."""
    found: dict[str, dict[str, Any]] = {}
    called: set[str] = set()
    for message in messages:
        called |= {call for call, _ in _calls_of(message)}
        is_user = message.get("role") == "user"
        for block in _blocks(message.get("content")) if is_user else [message]:
            for call in _result_ids({**message, "content": [block]} if is_user else block):
                if call in called:
                    found.setdefault(call, dict(block))
    return found


# ------------------------------------------------------------------------------------------ writing


def _without_results(message: Message) -> dict[str, Any] | None:
    """Return a message without the results in it; None when nothing is left."""
    if message.get("role") == "tool" or message.get("type") == "function_call_output":
        return None
    if message.get("role") == "user" and any(_result_ids(message)):
        rest = [one for one in message["content"] if one.get("type") != "tool_result"]
        return {**message, "content": rest} if rest else None
    return dict(message)


def _made(shape: str, id: str, result: Result) -> dict[str, Any]:
    if shape == "chat":
        return {"role": "tool", "tool_call_id": id, "content": result.text}
    if shape == "item":
        return {"type": "function_call_output", "call_id": id, "output": result.text}
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": result.text}
    return {**made, "is_error": True} if result.is_error else made
