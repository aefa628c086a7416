"""Planted: the agent itself writes a line, and every life writes it again."""

from pathlib import Path

import ninelives as nl


@nl.decision
async def choose(ticket: str) -> str:
    return "refund" if "broken" in ticket else "reply"


@nl.action
async def look_up(order: str) -> int:
    return len(order)


@nl.agent
async def support(ticket: str) -> str:
    plan = await choose(ticket)
    with Path("audit.log").open("a") as log:  # MISTAKE
        log.write(f"{plan}\n")
    return f"{plan} {await look_up(ticket)}"
