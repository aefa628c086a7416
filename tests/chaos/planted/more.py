"""More agents: mistakes of the same classes in other clothes, and good ones with children and sleeps."""

import logging
import random
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import ninelives as nl


@nl.action(reads_only=True)
async def count(words: list[str]) -> int:
    return len(words)


@nl.agent
async def child(words: list[str]) -> int:
    return await count(words)


@nl.agent
async def parent() -> int:
    first = await count(["a"])
    begun = await nl.spawn(child, ["a", "b"])
    await nl.sleep(30 * 86_400)  # skipped
    second: int = await begun.result()
    return first + second + await count(["c"])


@nl.agent
async def sets() -> int:
    words = list({"alpha", "beta", "gamma", "delta", "epsilon"})
    counted = await count(words)  # MISTAKE sets
    return counted + await count([])


@nl.action
def insert(number: int) -> int:
    with closing(sqlite3.connect("shop.db")) as shop, shop:  # MISTAKE rows
        shop.execute("CREATE TABLE IF NOT EXISTS booked (number)")
        shop.execute("INSERT INTO booked VALUES (?)", (number,))
    return number


@nl.agent
def rows() -> int:
    return insert(3)


@nl.action
def shell() -> int:
    return subprocess.run("echo x >> out.txt", shell=True, check=True).returncode  # MISTAKE program


@nl.agent
def program() -> int:
    return shell()


@nl.agent
async def parked() -> int:
    counted = await count(["a"])
    try:
        await nl.sleep(3600)
    finally:
        Path("left.txt").touch()  # MISTAKE parked
    return counted


@nl.action(approval=True)
async def pay(cents: int) -> int:
    return cents


@nl.agent
async def people() -> str:
    said = await nl.ask("how much?", type=int)
    paid = await pay(said)
    return f"{paid} {await nl.receive('thanks', type=str)}"


LOG = logging.getLogger("shop")
LOG.addHandler(logging.FileHandler("shop.log"))
LOG.setLevel("INFO")


@nl.decision
async def toss(number: int) -> str:
    LOG.info("asked %d", number)
    return random.choice(["heads", "tails"])  # as a model: not the same each time


@nl.agent(lives=1)
async def moody() -> list[str]:
    LOG.info("begun")
    return await nl.gather(toss(1), toss(2))
