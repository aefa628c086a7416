"""What the simulated workers execute: every kind of step, and each tells the world what it does.

The bodies draw from the world what nobody could have foreseen, so that a body that is executed again, or a
decision that was lost after the world had seen what came of it, shows.
"""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import Any

import ninelives as nl
from tests.simulation.ledger import Fact
from tests.simulation.machine import START_MS
from tests.simulation.world import World

LIMIT_SECONDS = 10.0
"""The time limit of bodies that must not be repeated: longer than any pause of a plan."""
SETTLE_SECONDS = 2.0
"""How long a request may be on its way."""
WINDOW_SECONDS = 1.0
"""How long a result is good that is asked for again and again."""
LIVES = 1_000_000


class Stage:
    """The world in which the agents are at the moment."""

    world: World | None = None


def world() -> World:
    """Return the world."""
    if Stage.world is None:
        raise AssertionError("there is no world")
    return Stage.world


async def _touch(value: int | None = None, start: int = 0, seconds: float = 0.005) -> int:
    """Do what a body does: travel, take effect, come back."""
    here = world()
    number = here.draw() if value is None else value
    here.note(Fact.BEGIN, number, start)
    await asyncio.sleep(here.rng.expovariate(1 / seconds))
    here.note(Fact.EFFECT, number, start)
    await asyncio.sleep(here.rng.expovariate(400))
    here.note(Fact.DONE, number, start)
    return number


# Steps that may be repeated -------------------------------------------------------------------------


@nl.decision(name="sim.decide", hedge=nl.Hedge(after=0.004, budget=0.5))
async def decide(number: int) -> int:
    """Answer as a model does: never the same twice."""
    return await _touch()


@nl.action(name="sim.look", reads_only=True)
async def look(number: int) -> int:
    """Read something that changes."""
    return await _touch()


@nl.action(name="sim.write")
async def write(value: int) -> int:
    """Write down a value: the world sees it."""
    return await _touch(value)


@nl.action(name="sim.plain")
def plain(value: int) -> int:
    """Write down a value, from a thread."""
    here = world()
    here.note(Fact.BEGIN, value)
    here.machine.block(here.rng.expovariate(300))
    here.note(Fact.EFFECT, value)
    return value


@nl.action(name="sim.buy", key="item:{item}")
async def buy(item: int) -> int:
    """Get something once for all runs; it may be asked for again."""
    if world().rng.random() < 0.1:
        raise nl.Permanent("not today")
    return await _touch(seconds=0.2)


@nl.action(name="sim.daily", key="daily:{value}", key_window=WINDOW_SECONDS)
async def daily(value: int) -> int:
    """Get something that is good for a while only."""
    return await _touch()


@nl.action(name="sim.shaky", retry=nl.Retry(attempts=4, base_seconds=0.2))
async def shaky(number: int) -> int:
    """Fail now and then."""
    if world().rng.random() < 0.4:
        raise nl.Transient("not now")
    return await _touch()


@nl.action(name="sim.breaks")
async def breaks(number: int) -> int:
    """Fail for good, until somebody has mended it."""
    if not world().is_mended:
        raise nl.Permanent("broken")
    return await _touch()


@nl.action(name="sim.undo")
async def undo(number: int) -> int:
    """Take back what was done."""
    return await _touch(number)


@nl.action(name="sim.book", transaction=lambda: world().connect())
async def book(conn: sqlite3.Connection, number: int) -> int:
    """Enter something into the world's own database, together with the record that it was done."""
    here, drawn = world(), world().draw()
    here.note(Fact.BEGIN, drawn)
    conn.execute("INSERT INTO entries VALUES (?, ?)", (nl.info().run, drawn))
    here.note(Fact.DONE, drawn)
    return drawn


# Steps that may not be ------------------------------------------------------------------------------


async def paid(value: int, *, key: str) -> nl.Happened[int] | nl.NotHappened:
    """Ask the world whether a payment was made."""
    here = world()
    here.note(Fact.PROBE, value)
    await asyncio.sleep(here.rng.expovariate(300))
    found = here.effects.get(key)
    return nl.Happened(found) if found is not None else nl.NotHappened()


async def _pay(seconds: float = 0.005) -> int:
    here, start = world(), nl.info().attempt
    if here.rng.random() < 0.15:
        raise nl.NotDone("declined")
    return await _touch(start=start, seconds=seconds)


@nl.action(name="sim.pay", resumable=False, verify=paid, timeout=LIMIT_SECONDS)
async def pay(value: int) -> int:
    """Pay; the world can be asked whether it happened."""
    return await _pay()


@nl.action(name="sim.pay_blind", resumable=False, timeout=LIMIT_SECONDS)
async def pay_blind(value: int) -> int:
    """Pay; only a person can tell whether it happened."""
    return await _pay()


@nl.action(
    name="sim.pay_told",
    resumable=False,
    in_doubt="raise",
    timeout=LIMIT_SECONDS,
    retry=nl.Retry(attempts=1),
)
async def pay_told(value: int) -> int:
    """Pay; the agent itself is told of the doubt."""
    return await _pay()


@nl.action(name="sim.wire", resumable=False, verify=paid, settle_after=SETTLE_SECONDS, timeout=LIMIT_SECONDS)
async def wire(value: int) -> int:
    """Send a payment, which lands whatever becomes of who sent it."""
    here, start, number = world(), nl.info().attempt, world().draw()
    here.note(Fact.BEGIN, number, start)
    await here.send(number, start, here.rng.uniform(0.001, SETTLE_SECONDS * 0.9))
    here.note(Fact.DONE, number, start)
    return number


@nl.action(
    name="sim.charge",
    resumable=False,
    key="order:{value}",
    verify=paid,
    timeout=LIMIT_SECONDS,
    retry=nl.Retry(attempts=3, base_seconds=0.1),
)
async def charge(value: int) -> int:
    """Charge once for all runs."""
    return await _pay(seconds=0.2)


@nl.action(
    name="sim.charge_told", resumable=False, key="only:{value}", in_doubt="raise", timeout=LIMIT_SECONDS
)
async def charge_told(value: int) -> int:
    """Charge once for all runs; the agent itself is told of a doubt."""
    return await _touch(start=nl.info().attempt, seconds=0.2)


@nl.action(name="sim.sign", resumable=False, verify=paid, approval=True, timeout=LIMIT_SECONDS)
async def sign(value: int) -> int:
    """Do what a person has to approve of."""
    return await _pay()


PROTECTED = frozenset(
    {"sim.pay", "sim.pay_blind", "sim.pay_told", "sim.wire", "sim.charge", "sim.charge_told", "sim.sign"}
)
"""The names of the steps that may not be repeated."""


# Agents ---------------------------------------------------------------------------------------------


@nl.agent(name="sim.thinker", lives=LIVES)
async def thinker(number: int) -> list[int]:
    """Decide, read, and act on it."""
    return await _think(number, reads=1)


@nl.agent(name="sim.piped", lives=LIVES, durability="pipelined")
async def piped(number: int) -> list[int]:
    """Do the same, without waiting for each record."""
    return await _think(number, reads=3)


async def _think(number: int, reads: int) -> list[int]:
    here, seen = world(), []
    for turn in range(3):
        nl.log.info(f"turn {turn}")
        nl.progress(turn, 3)
        chosen = here.told("sim.decide", turn, await decide(number + turn))
        for one in range(turn * reads, turn * reads + reads):
            chosen ^= here.told("sim.look", one, await look(number + one))
        seen.append(here.told("sim.write", turn, await write(chosen)))
    return seen


@nl.agent(name="sim.payer", lives=LIVES)
async def payer(number: int) -> list[int]:
    """Pay in every way."""
    return [await _paid(one, number) for one in (pay, pay_blind, pay_told, wire)]


DOUBTFUL, DECLINED = -1, -2


async def _paid(action: Any, number: int) -> int:
    try:
        return world().told(action.__ninelives__.name, 0, await action(number))
    except nl.InDoubt:
        return DOUBTFUL
    except (nl.NotDone, nl.Permanent, nl.Denied):
        return DECLINED


@nl.agent(name="sim.shopper", lives=LIVES)
async def shopper(number: int) -> list[int]:
    """Buy what others buy too."""
    return [await _paid(buy, number % 2), await _paid(charge, number % 2)]


@nl.agent(name="sim.regular", lives=LIVES)
async def regular(number: int) -> list[int]:
    """Get the same again and again, at intervals."""
    first = await _daily()
    await nl.sleep(WINDOW_SECONDS * (2 + number % 2 * 4))
    return [first, await _daily()]


async def _daily() -> int:
    while True:
        try:
            return await daily(0)
        except nl.KeyConflict:  # what it was is not known any more, and it is too early to do it anew
            await nl.sleep(WINDOW_SECONDS * 2)


@nl.agent(name="sim.quitter", lives=LIVES)
async def quitter(number: int) -> int:
    """Charge, and give up when it is in doubt: others want the same."""
    return world().told("sim.charge_told", 0, await charge_told(0))


@nl.agent(name="sim.signer", lives=LIVES)
async def signer(number: int) -> list[int]:
    """Ask a person, twice, then do what he has to approve of."""
    chosen = await nl.ask("Which?", [1, 2, 3])
    text = await nl.ask("What?", timeout=2.0, default="nothing")
    return [chosen, len(text), await _paid(sign, number)]


@nl.agent(name="sim.booker", lives=LIVES)
async def booker(number: int) -> list[int]:
    """Book again and again."""
    return [await book(number + one) for one in range(6)]


@nl.agent(name="sim.sleeper", lives=LIVES)
async def sleeper(number: int) -> int:
    """Sleep, act, sleep."""
    await nl.sleep(number % 5 + 0.5)
    value = await write(number)
    await nl.sleep_until(datetime.fromtimestamp(START_MS / 1000 + number, UTC))
    return value


@nl.agent(name="sim.cancelled", lives=LIVES)
async def cancelled(number: int) -> int:
    """Sleep until somebody cancels it, and take back what was done."""
    nl.on_failure(undo, number)
    await write(number)
    await nl.sleep(100_000)
    return number


@nl.agent(name="sim.listener", lives=LIVES)
async def listener(number: int) -> list[int]:
    """Wait for signals; the third one may not come."""
    first = await nl.receive("go", type=int)
    second = await write(await nl.receive("go", type=int))
    try:
        third = await nl.receive("late", type=int, timeout=1.5)
    except nl.TimedOut:
        third = DOUBTFUL
    return [first, second, third]


@nl.agent(name="sim.child", lives=LIVES)
async def child(number: int) -> int:
    """Be one of several."""
    await nl.sleep(0.3)
    return await write(number)


@nl.agent(name="sim.parent", lives=LIVES)
async def parent(number: int) -> list[int]:
    """Have children, and wait for them."""
    born = [await nl.spawn(child, number * 100 + one) for one in range(2)]
    return list(await nl.gather(*(one.result() for one in born), write(number)))


@nl.agent(name="sim.fan", lives=LIVES)
async def fan(number: int) -> list[int]:
    """Do many things at once, and one that takes too long."""
    seen = [*await nl.map(write, range(number, number + 4), limit=2)]
    try:
        async with nl.timeout(0.5):
            await nl.gather(write(number), nl.receive("never"))
    except nl.TimedOut:
        seen.append(number)
    return seen


@nl.action(name="sim.stream")
async def stream(number: int) -> int:
    """Emit as it goes."""
    here, drawn = world(), await _touch()
    for _ in range(3):
        await nl.emit(drawn)
        await asyncio.sleep(here.rng.expovariate(20))
        here.note(Fact.DONE, drawn)
    return drawn


@nl.agent(name="sim.emitter", lives=LIVES)
async def emitter(number: int) -> int:
    """Emit from outside and from inside of a step."""
    await nl.emit(number)
    drawn = await stream(number)
    await nl.emit(drawn)
    return drawn


@nl.agent(name="sim.turner", lives=LIVES)
async def turner(number: int, seen: list[int]) -> Any:
    """Go through turns; the snapshot carries what was seen."""
    seen = [*seen, await write(number * 10 + len(seen))]
    return seen if len(seen) == 3 else nl.next_turn(number, seen)


@nl.agent(name="sim.failing", lives=LIVES)
async def failing(number: int) -> int:
    """Do two things, fail, and take both back."""
    for one in (1, 2):
        nl.on_failure(undo, number * 10 + one)
        await write(number * 10 + one)
    raise ValueError("it fails")


@nl.agent(name="sim.mended", lives=LIVES)
async def mended(number: int) -> int:
    """Fail until somebody has mended the cause and lets it go on."""
    await write(number)
    return await breaks(number)


@nl.agent(name="sim.holder", lives=LIVES)
async def holder(number: int) -> int:
    """Hold something open over a sleep."""
    held = nl.hold(nl.Custom(f"thing-{number}", lambda: True))
    value = await write(number)
    await nl.sleep(1)
    held.release()
    return value


@nl.agent(name="sim.threaded", lives=LIVES)
def threaded(number: int) -> int:
    """Be plain code, in a thread."""
    value = plain(number)
    nl.sync.sleep(0.5)
    return plain(value + 1)


@nl.agent(name="sim.trying", lives=LIVES)
async def trying(number: int) -> int:
    """Try again and again."""
    try:
        return world().told("sim.shaky", 0, await shaky(number))
    except nl.Transient:
        return DECLINED
