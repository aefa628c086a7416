"""Agents whose every value has the canary. Run as a file with a store: `start`, `work` or `end`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import ninelives as nl

HOME = Path(os.environ["SECRETS_HOME"])
CANARY = os.environ["CANARY"]
TOKEN = f"token of {CANARY}"
FAST = nl.Retry(attempts=2, base_seconds=0)


def die_once(mark: str) -> None:
    """Kill this process the first time."""
    if not (HOME / mark).exists():
        (HOME / mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def note(what: str) -> None:
    """Write down an effect, outside the store."""
    with (HOME / "effects").open("a") as file:
        file.write(f"{what}\n")


@nl.action(retry=FAST)
async def look(what: str, token: nl.Secret[str]) -> dict[str, Any]:
    note("look")
    if what == "fails":
        raise nl.Permanent(f"no {CANARY}")
    if not (HOME / "tried").exists():
        (HOME / "tried").touch()
        raise ConnectionError(f"away {CANARY}")
    return {"found": CANARY, "same": token.reveal() == TOKEN}


@nl.action(resumable=False, verify=lambda what: nl.Unknown(f"cannot tell of {CANARY}"))
async def send(what: str) -> str:
    note("send")
    die_once("sent")
    return CANARY


@nl.action(key="pay:{number}")
async def pay(number: int, text: str) -> list[str]:
    note(f"pay {number}")
    return [text] * (6000 if number == 2 else 1)


@nl.action
async def undo(text: str) -> str:
    return text


@nl.action(approval=True)
async def approved(text: str) -> str:
    return text


@nl.agent
async def child(text: str) -> str:
    await nl.emit({"out": text})
    return text


@nl.agent
async def all_of_it(text: str, token: nl.Secret[str], history: list[str], turn: int = 0) -> Any:
    if turn == 0:
        nl.on_failure(undo, text)
        nl.log.info(f"a line {text}")
        nl.progress(1, 2, text)
        found = await look(text, token)
        assert found == {"found": CANARY, "same": True}
        assert await pay(1, text) == [CANARY]
        assert len(await pay(2, text)) == 6000
        die_once("middle")
        with suppress(nl.Permanent):
            await look("fails", token)
        return nl.next_turn(text, token, [*history, *[f"{n} {CANARY}" for n in range(900)]], 1)
    assert len(history) == 900
    assert await (await nl.spawn(child, text)).result() == CANARY
    assert await nl.receive("go", type=str) == CANARY
    assert await approved(text) == CANARY
    assert await nl.ask(f"what of {text}?", [text, "no"], timeout=9999, default=text) == CANARY
    pin = await nl.ask("the pin?", type=nl.Secret[str])
    assert await send(text) == CANARY
    return [text, pin, token]


@nl.agent
async def broken(text: str) -> None:
    nl.on_failure(undo, text)
    await pay(3, text)
    raise RuntimeError(f"broken by {text}")


async def people(rt: nl.Runtime) -> bool:
    """Answer what is asked; return whether anything was."""
    items = await rt.inbox()
    for item in items:
        asked = item.asked
        assert "(encrypted)" not in asked.what, asked
        if item.kind == "approval":
            await item.approve(by="ada", note=f"yes {CANARY}")
        elif item.kind == "doubt":
            await item.settle(happened=True, result=CANARY, by="ada")
        else:
            await item.answer(TOKEN if "pin" in asked.what else CANARY, by="ada")
    return bool(items)


async def main(url: str, what: str) -> None:
    """Start, work, or only start."""
    async with nl.Runtime(url) as rt:
        run = await rt.start(
            all_of_it, CANARY, nl.Secret(TOKEN, name="t"), [], id="all", labels={"of": "test"}
        )
        await rt.start(broken, CANARY, id="broken")
        if what == "start":
            return
        await rt.work(until_idle=True)
        await run.signal("go", CANARY, id="once")
        await run.signal("go", CANARY, id="once")
        while await people(rt) or not (await run.status()).is_final:
            await rt.work(until_idle=True)
        text, pin, token = await run.result()
        assert (text, pin.reveal(), token.reveal()) == (CANARY, TOKEN, TOKEN)
        print("completed", [entry.kind for entry in await run.history()][-1])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
