"""Agents that write where all runs write, and agents whose mistakes look like others."""

import asyncio
import os
import random
import threading
from pathlib import Path

import ninelives as nl

LEDGER = Path(os.environ.get("LEDGER", "ledger"))


@nl.action
def append(number: int) -> int:
    with LEDGER.open("a") as ledger:  # MISTAKE appends
        ledger.write(f"{number}\n")
    return number


@nl.agent
def appends() -> int:
    return append(1) + append(2)


@nl.action
def append_once(number: int) -> int:
    with LEDGER.open("a+") as ledger:
        ledger.seek(0)
        if nl.key() not in ledger.read():
            ledger.write(f"{nl.key()} {number}\n")
    return number


@nl.action
def write(number: int) -> int:
    draft = LEDGER.with_suffix(".draft")
    draft.write_text(f"{number}\n")
    draft.replace(LEDGER.with_suffix(".whole"))
    return number


@nl.agent
def careful() -> int:
    return append_once(1) + append_once(2) + write(3)


@nl.action
async def slowly(number: int) -> int:
    await asyncio.sleep(random.random() * 0.01)
    return number


@nl.agent
async def tasks() -> int:
    total = 0
    kept = [bytes(100 + number) for number in range(threading.get_native_id() % 50)]  # no two lives alike
    for one in asyncio.as_completed([slowly(number) for number in range(6)]):  # MISTAKE tasks
        total += await one
    del kept
    return total


@nl.action
def save(name: str, text: str) -> int:
    return Path(name).write_text(text)


@nl.agent
def listing() -> int:
    save("one.txt", "1")
    return save("two.txt", str(len(os.listdir("."))))  # MISTAKE listing


@nl.agent
def branching() -> int:
    if random.random() < 0.5:  # MISTAKE branching
        return save("one.txt", "1")
    return append_once(1)
