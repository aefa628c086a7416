"""What the fleets execute: short runs whose result is known beforehand, and who note all that they do."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import ninelives as nl
from tests.crash.stores import kind_at
from tests.fleet.ledger import Fact
from tests.fleet.windows import Windows, install

_HOME = os.environ.get("FLEET_HOME")
_WINDOWS = Windows(Path(_HOME)) if _HOME else None
if _HOME and _WINDOWS is not None:
    install(_WINDOWS, kind_at(Path(_HOME)))
if _CLOCK := os.environ.get("FLEET_CLOCK"):
    from tests.fleet.clocks import Clock

    Clock(Path(_CLOCK)).gone_by().__enter__()

PAUSE_SECONDS = 0.002
_NAP_SECONDS = 0.05


def mixed(value: int, number: int) -> int:
    """Return what a step makes of a value."""
    return (value * 31 + number * 17 + 7) % 1_000_003


@nl.action(name="fleet.mix")
async def mix(value: int, number: int) -> int:
    """Touch the world."""
    if _WINDOWS is None:
        return mixed(value, number)
    run, step = nl.info().run, str(number)
    _WINDOWS.ledger.write(Fact.BEGIN, run, step)
    await asyncio.sleep(PAUSE_SECONDS)
    _WINDOWS.passing("between intent and effect")
    _WINDOWS.ledger.write(Fact.EFFECT, run, step)
    _WINDOWS.passing("between effect and result")
    return mixed(value, number)


@nl.action(name="fleet.plain")
def plain(value: int, number: int) -> int:
    """Touch the world from a thread."""
    if _WINDOWS is None:
        return mixed(value, number)
    run, step = nl.info().run, str(number)
    _WINDOWS.ledger.write(Fact.BEGIN, run, step)
    _WINDOWS.passing("between intent and effect")
    _WINDOWS.ledger.write(Fact.EFFECT, run, step)
    return mixed(value, number)


def paid(value: int, number: int) -> nl.Happened[int] | nl.NotHappened:
    """Ask the world whether a payment was made."""
    if _WINDOWS is not None and _WINDOWS.ledger.has(Fact.EFFECT, nl.info().run, str(number)):
        return nl.Happened(mixed(value, number))
    return nl.NotHappened()


@nl.action(name="fleet.pay", resumable=False, verify=paid)
async def pay(value: int, number: int) -> int:
    """Do what must not be done twice."""
    _begin_payment(number)
    await asyncio.sleep(PAUSE_SECONDS)
    _pay(number)
    return mixed(value, number)


@nl.action(name="fleet.pay_plain", resumable=False, verify=paid)
def pay_plain(value: int, number: int) -> int:
    """Do from a thread what must not be done twice."""
    _begin_payment(number)
    _pay(number)
    return mixed(value, number)


def _begin_payment(number: int) -> None:
    if _WINDOWS is not None:
        _WINDOWS.ledger.write(Fact.BEGIN, nl.info().run, str(number), start=nl.info().attempt)


def _pay(number: int) -> None:
    if _WINDOWS is not None:
        _WINDOWS.passing("between intent and payment")
        _WINDOWS.ledger.write(Fact.EFFECT, nl.info().run, str(number), start=nl.info().attempt)
        _WINDOWS.passing("between payment and result")


def _told(number: int) -> None:
    if _WINDOWS is not None:
        _WINDOWS.ledger.write(Fact.TOLD, nl.info().run, str(number))
        if nl.info().is_replaying:
            _WINDOWS.passing("in replay")


@nl.agent(name="fleet.chain", lives=1_000_000)
async def chain(seed: int, steps: int) -> int:
    """One step after the other."""
    value = seed
    for number in range(steps):
        value = await (mix(value, number) if number % 3 else _in_thread(value, number))
        _told(number)
    return value


async def _in_thread(value: int, number: int) -> int:
    return await asyncio.to_thread(plain, value, number)


@nl.agent(name="fleet.shop", lives=1_000_000)
async def shop(seed: int, steps: int) -> int:
    """Payments, one after the other, and what may be repeated between them."""
    value = seed
    for number in range(steps):
        if number % 3 == 0:
            value = await mix(value, number)
        elif number % 3 == 1:
            value = await pay(value, number)
        else:
            value = await asyncio.to_thread(pay_plain, value, number)
        _told(number)
    return value


@nl.agent(name="fleet.nap", lives=1_000_000)
async def nap(seed: int, steps: int) -> int:
    """One step after the other, with durable pauses."""
    value = seed
    for number in range(steps):
        value = await mix(value, number)
        _told(number)
        await nl.sleep(_NAP_SECONDS)
    return value


@nl.agent(name="fleet.fan", lives=1_000_000)
async def fan(seed: int, steps: int) -> int:
    """All steps at once."""

    async def one(number: int) -> int:
        value = await mix(seed, number)
        _told(number)
        return value

    return sum(await nl.gather(*(one(number) for number in range(steps))))


def expected(agent: str, seed: int, steps: int) -> int:
    """Return the result of a run that never crashed."""
    if agent == "fleet.fan":
        return sum(mixed(seed, number) for number in range(steps))
    value = seed
    for number in range(steps):
        value = mixed(value, number)
    return value
