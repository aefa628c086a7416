"""The support agent, written as any user would write it: nothing in this file is about crashes."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

import ninelives as nl
from ninelives.demo import model
from ninelives.demo.model import Choice, Message
from ninelives.demo.tickets import SupportTicket, tickets

MAX_STEPS, OPEN_TICKETS = 12, 3


@dataclass(frozen=True)
class Order:
    """The shop's data about an order."""

    id: str
    item: str
    status: str
    cents: int
    city: str
    refunded_cents: int
    technician: str


@dataclass(frozen=True)
class Receipt:
    """A refund that was made."""

    number: str
    order_id: str
    cents: int


@dataclass(frozen=True)
class Visit:
    """A technician's visit that was booked."""

    number: str
    order_id: str
    at: str


@dataclass(frozen=True)
class Reply:
    """How a ticket ended."""

    text: str
    done: list[str] = field(default_factory=list)


class Refused(Exception):
    """The shop refused a request; trying again will not help."""


@nl.decision(retry=nl.Retry())  # a provider that is not there ends the demo soon
async def choose(messages: list[Message]) -> Choice:
    """Ask the model what to do next."""
    return await model.ask(messages, run=nl.info().run)


@nl.action(reads_only=True, retry=nl.Retry())
async def order_status(order_id: str) -> Order:
    """Look an order up."""
    return Order(**await _shop("GET", f"/orders/{order_id}"))


@nl.action(reads_only=True, retry=nl.Retry())
async def technician_times(city: str) -> list[str]:
    """Look up when a technician could come."""
    found: list[str] = (await _shop("GET", f"/technicians/{city}"))["times"]
    return found


@nl.action(raises=[Refused])
async def refund(order_id: str, cents: int) -> Receipt:
    """Pay money back. The shop pays once per key."""
    return Receipt(**await _shop("POST", "/refunds", {"order_id": order_id, "cents": cents}, nl.key()))


@nl.action(raises=[Refused])
async def book_technician(order_id: str, at: str) -> Visit:
    """Book a visit. The shop books once per key."""
    return Visit(**await _shop("POST", "/visits", {"order_id": order_id, "at": at}, nl.key()))


@nl.agent
async def support(ticket: SupportTicket) -> Reply:
    """Work on a ticket until the customer can be answered."""
    messages = [Message("customer", ticket.text)]
    done: list[str] = []
    for step in range(1, MAX_STEPS + 1):
        choice = await choose(messages)
        nl.progress(step, note=choice.tool)
        if choice.tool == "reply":
            nl.log.info(f"{ticket.id}: {choice.text}")
            return Reply(choice.text, done)
        messages = [*messages, Message("agent", choice.text, choice.tool)]
        try:
            answer = await _use(choice, done)
        except Refused as no:
            answer = f"refused: {no}"
        messages = [*messages, Message("tool", answer, choice.tool)]
    raise nl.Permanent(f"{ticket.id}: no answer for the customer after {MAX_STEPS} steps")


@nl.agent
async def desk(count: int) -> list[Reply]:
    """Hand the tickets to support agents, a few at a time."""
    return await nl.map(_handle, tickets(count), limit=OPEN_TICKETS)


async def _handle(ticket: SupportTicket) -> Reply:
    child = await nl.spawn(support, ticket, id=ticket.id)
    reply: Reply = await child.result()
    return reply


async def _use(choice: Choice, done: list[str]) -> str:
    """Run the tool that the model chose, and return its result as JSON."""
    match choice.tool:
        case "order_status":
            return json.dumps(asdict(await order_status(choice.order_id)))
        case "technician_times":
            return json.dumps(await technician_times(choice.city))
        case "refund":
            receipt = await refund(choice.order_id, choice.cents)
            done.append(f"refund {receipt.number}: {receipt.cents} cents of {receipt.order_id}")
            return json.dumps(asdict(receipt))
        case "book_technician":
            visit = await book_technician(choice.order_id, choice.at)
            done.append(f"visit {visit.number}: {visit.at} for {visit.order_id}")
            return json.dumps(asdict(visit))
        case _:
            return f"there is no tool {choice.tool!r}"


async def _shop(method: str, path: str, body: dict[str, Any] | None = None, key: str = "") -> dict[str, Any]:
    """Send a request to the shop. Raises Refused for a 4xx answer, Transient for a 5xx one."""
    return await asyncio.to_thread(_request, method, path, body, key)


def _request(method: str, path: str, body: dict[str, Any] | None, key: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(os.environ["NINELIVES_DEMO_SHOP"], timeout=30)
    try:
        headers = {"Idempotency-Key": key} if key else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    finally:
        connection.close()
    if response.status >= 500:
        raise nl.Transient(f"the shop answers {response.status}")
    if response.status >= 400:
        raise Refused(answer["error"])
    return answer
