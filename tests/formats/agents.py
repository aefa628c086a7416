"""The agents of the stores that are kept: the code that made them, and that goes on with them.

The world is a ledger: one line per effect. Bodies named in `FORMATS_HANG` hang, so that they can be killed;
what `FORMATS_BROKEN` names fails. This code must stay as it is: runs of every kept format go on with it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import ninelives as nl

LEDGER, HANG, BROKEN = "FORMATS_LEDGER", "FORMATS_HANG", "FORMATS_BROKEN"
USAGE = {"model": "gpt-9", "usage": {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150}}


def _write(line: str) -> None:
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


async def _hang_at(what: str) -> None:
    if what in os.environ.get(HANG, "").split(","):
        _write(f"hangs {what}")
        await asyncio.Event().wait()


@nl.decision(name="think")
async def think(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Answer as a model does."""
    return {"content": f"thought {len(messages)}", **USAGE}


@nl.action(name="look", reads_only=True)
async def look(what: str) -> str:
    """Read something large."""
    return f"{what} " * 12_000


@nl.action(name="note")
async def note(what: str) -> str:
    """Do something that can be seen."""
    await _hang_at(what)
    _write(f"note {what}")
    return what


@nl.action(name="flaky", retry=nl.Retry(attempts=5, base_seconds=8.0, max_seconds=8.0))
async def flaky(what: str) -> str:
    """Fail for as long as the world is broken."""
    if what in os.environ.get(BROKEN, "").split(","):
        raise nl.Transient(f"{what} is broken")
    _write(f"flaky {what}")
    return what


@nl.action(name="break")
async def break_(what: str) -> str:
    """Fail for good."""
    raise nl.Permanent(what)


def _was_sent(what: str, *, key: str = "") -> nl.Happened[str] | nl.NotHappened:
    lines = Path(os.environ[LEDGER]).read_text().splitlines()
    return nl.Happened(what) if f"send {what}" in lines else nl.NotHappened()


@nl.action(name="send", resumable=False, verify=_was_sent)
async def send(what: str) -> str:
    """Do something once; it can be asked what came of it."""
    await _hang_at(f"before {what}")
    _write(f"send {what}")
    await _hang_at(what)
    return what


@nl.action(name="pay", resumable=False, key="pay:{order}", verify=None)
async def pay(order: str) -> str:
    """Do something once per order; nobody can be asked what came of it."""
    _write(f"pay {order}")
    await _hang_at(order)
    return f"paid {order}"


@nl.action(name="book", key="book:{order}")
async def book(order: str) -> str:
    """Do something once per order."""
    await _hang_at(order)
    _write(f"book {order}")
    return f"booked {order}"


@nl.action(name="refund", approval=True)
async def refund(order: str) -> str:
    """Do something that a person must allow."""
    _write(f"refund {order}")
    return f"refunded {order}"


@nl.action(name="stream")
async def stream(what: str) -> str:
    """Give output in pieces."""
    for piece in ("one", "two", "three"):
        await nl.emit(f"{what} {piece}")
    return what


@nl.agent(name="talker")
async def talker(rounds: int) -> str:
    """Talk to a model; each round the history is longer."""
    messages = [{"role": "user", "content": "hello"}]
    for number in range(rounds):
        answer = await think(messages)
        messages.append({"role": "assistant", "content": str(answer["content"])})
        nl.progress(number + 1, of=rounds, note="talking")
    await stream("talk")
    nl.log.info("talked")
    await note(f"talked {nl.info().run}")
    return str(await nl.receive("go", type=str))


@nl.agent(name="reader")
async def reader() -> int:
    """Read large things, and ask a person what to do with them."""
    pages = [await look("page"), await look("leaf")]
    answer = await nl.ask("How many?", ["1", "2"])
    await note(f"read {answer}")
    return sum(len(page) for page in pages) + int(answer)


@nl.agent(name="sleeper")
async def sleeper(seconds: float) -> str:
    """Sleep between two notes."""
    await note(f"before {nl.info().run}")
    await nl.sleep(seconds)
    return await note(f"after {nl.info().run}")


@nl.agent(name="turner")
async def turner(turn: int) -> str:
    """Go through turns, holding something, with signals on the way."""
    if turn == 0:
        nl.hold(nl.Custom("desk", lambda: True))
        nl.on_failure(note, f"undo {nl.info().run}")
    taken = await nl.receive("next", type=int)
    await note(f"turn {turn} took {taken}")
    if turn < 3:
        return nl.next_turn(turn + 1)  # type: ignore[no-any-return]
    return f"{turn} turns"


@nl.agent(name="undoer")
async def undoer() -> str:
    """Do two things with what undoes them, wait, and fail."""
    for what in ("a", "b"):
        nl.on_failure(note, f"undo {what} of {nl.info().run}")
        await note(f"{what} of {nl.info().run}")
    await nl.receive("go", type=str)
    return await break_("on purpose")


@nl.agent(name="child")
async def child(name: str, waits: bool) -> str:
    """Do one thing, perhaps after a signal."""
    if waits:
        await nl.receive("go", type=str)
    return await note(f"child {name} of {nl.info().run}")


@nl.agent(name="parent")
async def parent() -> list[str]:
    """Have children do it."""
    children = [await nl.spawn(child, name, name == "slow") for name in ("quick", "slow")]
    return [await one.result() for one in children]


@nl.agent(name="noter")
async def noter(what: str) -> str:
    """Do two things."""
    await note(f"first of {what}")
    return await note(what)


@nl.agent(name="sender")
async def sender(what: str) -> str:
    """Do something once."""
    await note(f"first of {what}")
    return await send(what)


@nl.agent(name="payer")
async def payer(order: str) -> str:
    """Pay once, and once only."""
    return await pay(order)


@nl.agent(name="booker")
async def booker(order: str) -> str:
    """Book once per order, in many runs."""
    await note(f"asks {nl.info().run}")
    return await book(order)


@nl.agent(name="refunder")
async def refunder(order: str) -> str:
    """Refund if a person allows it."""
    return await refund(order)


@nl.agent(name="trier")
async def trier(what: str) -> str:
    """Try what is broken."""
    await note(f"tries {what}")
    return await flaky(what)
