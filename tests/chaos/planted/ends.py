"""Agents that end otherwise than most: in a failure that is meant, in one that is not, or never again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import ninelives as nl


@nl.action
async def write(name: str, text: str) -> int:
    return Path(name).write_text(text, encoding="utf-8")


@nl.action
async def append(name: str, text: str) -> int:
    with Path(name).open("a", encoding="utf-8") as file:
        return file.write(text)  # MISTAKE careless


@nl.agent
async def declined() -> None:
    nl.on_failure(write, "undone.txt", "undone")
    await write("done.txt", "done")
    raise nl.Permanent("the card was declined")


@nl.agent
async def careless() -> None:
    nl.on_failure(append, "undone.txt", "undone\n")
    raise nl.Permanent("the card was declined")


@nl.action(retry=nl.Retry(attempts=1))
async def broken() -> None:
    raise RuntimeError("nobody answers")  # BROKEN


@nl.agent
async def unlucky() -> None:
    await broken()  # UNLUCKY


@nl.agent
async def endless() -> None:
    await write("done.txt", "done")
    await asyncio.Event().wait()


@nl.agent
async def long(steps: int) -> int:
    for step in range(steps):
        await write("at.txt", str(step))
    return steps
