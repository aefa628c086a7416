"""Planted: a step returns an object with something in it that is not stored, and comes back without it."""

from dataclasses import dataclass, field
from typing import Any

import ninelives as nl


@dataclass
class Order:
    """An order, and a connection that it came through."""

    id: str
    cents: int
    connection: Any = field(default=None, compare=False)


@nl.action
async def look_up(order: str) -> Order:
    found = Order(order, 1200)
    found.connection = object()
    return found  # MISTAKE


@nl.action
async def close(ticket: str) -> int:
    return len(ticket)


@nl.agent
async def support(ticket: str) -> str:
    order = await look_up("A-1")
    await close(ticket)
    return f"{order.id} {order.cents}"
