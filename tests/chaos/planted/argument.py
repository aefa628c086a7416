"""Planted: the time of day goes into an argument, and is another one after a crash."""

import time

import ninelives as nl


@nl.decision
async def choose(ticket: str) -> str:
    return "refund" if "broken" in ticket else "reply"


@nl.action
async def report(plan: str, at: float) -> str:
    return f"{plan} {at > 0}"


@nl.action
async def close(ticket: str) -> int:
    return len(ticket)


@nl.agent
async def support(ticket: str) -> str:
    plan = await choose(ticket)
    began = time.time()
    told = await report(plan, began)  # MISTAKE
    await close(ticket)
    return told
