"""Planted: an action that may be repeated appends to a file, and a repetition appends again."""

from pathlib import Path

import ninelives as nl


@nl.decision
async def choose(ticket: str) -> str:
    return "refund" if "broken" in ticket else "reply"


@nl.action
async def book(order: str, cents: int) -> str:
    with Path("bookings.csv").open("a") as file:  # MISTAKE
        file.write(f"{order},{cents}\n")
    return f"booked {cents}"


@nl.action
async def close(ticket: str) -> int:
    Path("closed.txt").write_text(ticket)
    return len(ticket)


@nl.agent
async def support(ticket: str) -> str:
    plan = await choose(ticket)
    booked = await book("A-1", 1200)
    await close(ticket)
    return f"{plan}: {booked}"
