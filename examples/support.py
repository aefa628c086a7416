"""A support agent that survives being killed anywhere. Try it:

    ninelives run examples/support.py:support '"it came broken"' A-1
    ninelives chaos examples/support.py:support '"it came broken"' A-1

It keeps its books in files, so that it needs nothing else: the directory `refunds` is the payment provider.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import ninelives as nl

REFUNDS, LETTERS = Path("refunds"), Path("letters")


@nl.decision  # a real one asks a model; the answer is recorded, and never asked for twice
async def choose(ticket: str) -> str:
    return "refund" if "broken" in ticket else "reply"


@nl.action(reads_only=True)
async def look_up(order: str) -> dict[str, int]:
    return {"A-1": {"cents": 1200, "days": 3}}.get(order, {"cents": 0, "days": 99})


def refunded(order: str, cents: int, *, key: str) -> nl.Happened[str] | nl.NotHappened:  # noqa: ARG001
    """Ask the provider whether it happened; a real one is asked by the key."""
    known = REFUNDS / f"{order}.txt"
    return nl.Happened(f"refunded {cents}") if known.exists() else nl.NotHappened()


@nl.action(resumable=False, key="refund:{order}", verify=refunded)  # money: never twice
def refund(order: str, cents: int) -> str:
    REFUNDS.mkdir(exist_ok=True)
    with (REFUNDS / f"{order}.txt").open("x") as file:
        file.write(f"{cents}\n")
    return f"refunded {cents}"


@nl.action  # may be repeated: it says the same when it says it again
def write_letter(name: str, text: str) -> int:
    LETTERS.mkdir(exist_ok=True)
    return (LETTERS / f"{name}.txt").write_text(text)


@nl.agent
async def support(ticket: str, order: str) -> str:
    plan = await choose(ticket)
    found = await look_up(order)
    if plan != "refund" or found["days"] > 30:
        return "we will look into it"
    done = await asyncio.to_thread(refund, order, found["cents"])
    await asyncio.gather(
        asyncio.to_thread(write_letter, "customer", f"We have {done} cents.\n"),
        asyncio.to_thread(write_letter, "books", f"{order}: {done}\n"),
    )
    return f"{order}: {done}, {nl.now():%Y}"
