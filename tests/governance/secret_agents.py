"""Agents that put a secret everywhere that a value can go. Run as a file with a store: dies once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

import ninelives as nl
from ninelives.logs.formats import JsonFormatter

HOME = Path(os.environ["SECRETS_HOME"])
FAST = nl.Retry(attempts=3, base_seconds=0)


def token() -> nl.Secret[str]:
    """Return the secret, as a program would: from the environment."""
    return nl.Secret(os.environ["CANARY"], name="CANARY")


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


@dataclass
class Card:
    number: nl.Secret[str]


def die_once() -> None:
    """Kill this process the first time."""
    mark = HOME / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@nl.action(retry=FAST)
async def login(secret: nl.Secret[str], nested: dict[str, Any], card: Card, model: Login) -> str:
    plain = secret.reveal()
    nl.log.info(f"logging in with {plain}, {secret} and {model}")
    mark = HOME / "tried"
    if not mark.exists():
        mark.touch()
        raise ConnectionError(f"https://api/?key={plain} is away")
    return f"in as {model.user}"


@nl.action(raises=(ValueError,), retry=nl.Retry(attempts=1))
async def fails(secret: nl.Secret[str], how: str) -> None:
    raise ValueError(secret) if how == "args" else ValueError(f"401 {secret.reveal()}", {"k": [secret]})


@nl.action(resumable=False, verify=lambda secret: (_ for _ in ()).throw(OSError(secret.reveal())))
async def charge(secret: nl.Secret[str]) -> None:
    raise ConnectionResetError(f"lost while sending {secret.reveal()}")


@nl.action(approval=nl.Approval(to="ops"))
async def wire(secret: nl.Secret[str], card: Card, cents: int) -> str:
    return f"{cents} wired"


@nl.action
async def returns(secret: nl.Secret[str], how: str) -> Any:
    return {"plain": {"deep": [secret]}}[how]


@nl.action
async def returns_model() -> Login:
    return Login(user="ann", password=pydantic.SecretStr(os.environ["CANARY"]))


@nl.action(key=lambda secret: f"pay:{secret}")
async def keyed(secret: nl.Secret[str]) -> None:
    raise AssertionError("a key of a secret is refused before this")


@nl.action
async def undo(secret: Any) -> None: ...


@nl.agent
async def child(secret: Any) -> None: ...


@nl.agent
async def turns(secret: Any = None) -> str:
    return "next" if secret is not None else nl.next_turn(token())


async def refused(what: Any) -> str:
    """Return with what error a call is refused."""
    try:
        found = what()
        if asyncio.iscoroutine(found):
            await found
    except (nl.UsageError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was not refused")


@nl.agent
async def everywhere() -> list[str]:
    secret = token()
    model = Login(user="ann", password=pydantic.SecretStr(secret.reveal()))
    said = [await login(secret, {"deep": [secret]}, Card(secret), model)]
    nl.progress(1, 2, f"with {secret.reveal()}")
    die_once()
    said += [await refused(lambda: fails(secret, "args")), await refused(lambda: fails(secret, "text"))]
    said += [await refused(lambda: returns(secret, "plain")), await refused(returns_model)]
    said += [await refused(lambda: nl.spawn(child, secret)), await refused(lambda: nl.emit([secret]))]
    said += [await refused(lambda: nl.on_failure(undo, secret)), await refused(lambda: keyed(secret))]
    said += [await refused(lambda: nl.ask("the code?", type=nl.Secret[str]))]
    said += [await refused(lambda: nl.receive("code", type=Login))]
    nl.log.error(secret)  # type: ignore[arg-type]
    said.append(await wire(secret, Card(secret), 5))
    return said


@nl.agent
async def doubtful() -> None:
    await charge(token())


@nl.agent
async def broken() -> None:
    raise RuntimeError(f"the agent fails with {token().reveal()}", token())


async def main(url: str) -> None:
    """Start all agents and work until nothing can go on."""
    async with nl.Runtime(url) as rt:
        for agent in (everywhere, doubtful, broken, turns):
            await rt.start(agent, id=agent.__name__)
        for start in (lambda: rt.start(child, token()), lambda: rt.start(child, {"deep": token()})):
            print(await refused(start))
        run = await rt.get("everywhere")
        print(await refused(lambda: run.signal("code", token())))
        await rt.work(until_idle=True)
        for item in await rt.inbox("everywhere"):
            print(item)
            await item.approve(by="ada", note="ok")
        await rt.work(until_idle=True)
        if (await run.status()).is_final:
            print("\n".join(await run.result()))


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    asyncio.run(main(sys.argv[1]))
