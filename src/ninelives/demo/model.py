"""The demo's model: scripted, so that the demo costs nothing; or a real one if its API key is set.

With `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, every decision is one HTTPS request to that provider that makes
the model choose one tool, with temperature 0. `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL` and
`NINELIVES_DEMO_MODEL` select another endpoint and model. The step retries temporary errors (429, 5xx, no
connection); a refused key or a malformed answer fails it with a clear message.

Every request is logged on a bill, one JSON object per line, before it is sent and when it is answered. The
bill is a file outside the store: it shows what a provider would have charged.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ninelives as nl

SCRIPTED_SECONDS = 0.08
TIMEOUT_SECONDS = 60.0
SYSTEM = (
    "You work for a shop's customer support. Use one tool at a time. Look at each order the customer names "
    "first. Refund only what the customer asks for and nothing twice; if a refund is refused, book a "
    "technician at the first free time instead. Look at the order again after you changed it, then reply."
)
_TEXT = {"type": "string"}
TOOLS: dict[str, dict[str, Any]] = {
    "order_status": {"order_id": _TEXT},
    "technician_times": {"city": _TEXT},
    "refund": {"order_id": _TEXT, "cents": {"type": "integer"}},
    "book_technician": {"order_id": _TEXT, "at": _TEXT},
    "reply": {"text": _TEXT},
}


@dataclass(frozen=True)
class Message:
    """One message of the conversation; `tool` is the tool that it calls or answers for."""

    role: str
    text: str
    tool: str = ""


@dataclass(frozen=True)
class Choice:
    """What the model chose to do."""

    tool: str
    order_id: str = ""
    cents: int = 0
    city: str = ""
    at: str = ""
    text: str = ""


class ModelError(Exception):
    """A provider's error answer; its status decides whether a retry makes sense."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status_code = status


def provider(environ: Mapping[str, str] = os.environ) -> str:
    """Return which model answers: openai, anthropic, or scripted."""
    for name in ("openai", "anthropic"):
        if environ.get(f"{name.upper()}_API_KEY"):
            return name
    return "scripted"


def is_scripted() -> bool:
    """Return whether the scripted model answers."""
    return provider() == "scripted"


async def ask(messages: list[Message], *, run: str) -> Choice:
    """Ask for the next choice. Raises ModelError; Permanent for a malformed answer."""
    _bill(run, len(messages), {"event": "asked"})
    if is_scripted():
        await asyncio.sleep(SCRIPTED_SECONDS)
        choice = scripted(messages)
        tokens = estimate(messages, choice)
    else:
        choice, tokens = await asyncio.to_thread(ask_provider, messages)
    _bill(run, len(messages), {"event": "answered", "tokens": tokens})
    return choice


def _bill(run: str, messages: int, entry: dict[str, Any]) -> None:
    path = os.environ.get("NINELIVES_DEMO_BILL")
    if path:
        with open(path, "a") as bill:  # noqa: PTH123 (one short append, which is atomic)
            bill.write(json.dumps({"run": run, "messages": messages, **entry}) + "\n")


# The script ---------------------------------------------------------------------------------------


def scripted(messages: list[Message]) -> Choice:
    """Choose as a sensible model would; equal messages give equal choices."""
    text = messages[0].text
    answers = [message for message in messages if message.role == "tool"]
    used = [answer.tool for answer in answers]
    orders = re.findall(r"A-\d+", text)
    if used.count("order_status") < len(orders):
        return Choice("order_status", order_id=orders[used.count("order_status")])
    order = json.loads(next(answer.text for answer in reversed(answers) if answer.tool == "order_status"))
    if "efund" in text and "refund" not in used:
        share = 2 if "half" in text else 1
        return Choice("refund", order_id=order["id"], cents=order["cents"] // share)
    is_refused = any(answer.text.startswith("refused") for answer in answers)
    if ("technician" in text or is_refused) and "book_technician" not in used:
        if "technician_times" not in used:
            return Choice("technician_times", city=order["city"])
        times = json.loads(answers[-1].text)
        return Choice("book_technician", order_id=order["id"], at=times[0])
    if used[-1] != "order_status":
        return Choice("order_status", order_id=order["id"])
    return Choice("reply", text=_summary(order, is_refused=is_refused))


def _summary(order: dict[str, Any], *, is_refused: bool) -> str:
    parts = [f"your {order['item']} is {order['status']}"]
    if order["refunded_cents"]:
        parts.append(f"{order['refunded_cents'] / 100:.2f} are on their way back to you")
    if is_refused:
        parts.append("it is too late for a refund")
    if order["technician"]:
        parts.append(f"a technician comes on {order['technician']}")
    return ", ".join(parts).capitalize() + "."


def estimate(messages: list[Message], choice: Choice) -> int:
    """Estimate tokens roughly as providers count them: instructions, tools, conversation, answer."""
    words = SYSTEM + json.dumps(TOOLS) + "".join(message.text for message in messages) + repr(choice)
    return len(words) // 4


# A real model -------------------------------------------------------------------------------------


def ask_provider(messages: list[Message], environ: Mapping[str, str] = os.environ) -> tuple[Choice, int]:
    """Ask a real model; return its choice and the tokens it charged. Raises ModelError, Permanent."""
    import urllib.error
    import urllib.request

    url, headers, body = _request(messages, environ)
    sent = urllib.request.Request(  # noqa: S310 (the provider's address, or what the user set instead)
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}, method="POST"
    )
    try:
        with urllib.request.urlopen(sent, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            answer = response.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(300).decode(errors="replace")
        raise ModelError(f"{provider(environ)} answers {error.code}: {text}", error.code) from None
    except urllib.error.URLError as error:
        raise ConnectionError(f"{provider(environ)} cannot be reached: {error.reason}") from None
    return parse_answer(answer)


def _request(
    messages: list[Message], environ: Mapping[str, str]
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return URL, headers and body of the request that makes a provider's model choose one tool."""
    conversation = [{"role": "user", "content": _transcript(messages)}]
    if provider(environ) == "openai":
        tools = [{"name": name, "parameters": _schema(name)} for name in TOOLS]
        base = environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        body = {
            "model": environ.get("NINELIVES_DEMO_MODEL", "gpt-4o-mini"),
            "temperature": 0,
            "messages": [{"role": "system", "content": SYSTEM}, *conversation],
            "tools": [{"type": "function", "function": tool} for tool in tools],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        }
        return f"{base}/chat/completions", {"Authorization": f"Bearer {environ['OPENAI_API_KEY']}"}, body
    base = environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
    body = {
        "model": environ.get("NINELIVES_DEMO_MODEL", "claude-haiku-4-5"),
        "max_tokens": 500,
        "temperature": 0,
        "system": SYSTEM,
        "messages": conversation,
        "tools": [{"name": name, "input_schema": _schema(name)} for name in TOOLS],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    }
    headers = {"x-api-key": environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    return f"{base}/v1/messages", headers, body


def parse_answer(data: bytes) -> tuple[Choice, int]:
    """Parse a provider's answer. Raises Permanent if it chose none of the offered tools."""
    try:
        answer = json.loads(data)
        if "choices" in answer:
            called = answer["choices"][0]["message"]["tool_calls"][0]["function"]
            name, given = called["name"], json.loads(called["arguments"])
            tokens = answer["usage"]["total_tokens"]
        else:
            called = next(part for part in answer["content"] if part["type"] == "tool_use")
            name, given = called["name"], called["input"]
            tokens = answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]
        return Choice(name, **{field: given[field] for field in TOOLS[name]}), int(tokens)
    except (ValueError, KeyError, IndexError, TypeError, StopIteration) as error:
        start = data[:300].decode(errors="replace")
        raise nl.Permanent(f"the model chose none of the offered tools ({error!r}): {start}") from None


def _schema(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": TOOLS[name], "required": list(TOOLS[name])}


def _transcript(messages: list[Message]) -> str:
    return "\n".join(f"{message.role} {message.tool}: {message.text}".strip() for message in messages)
