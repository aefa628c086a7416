"""What the processes of the family tests do: work, retry, fork, cancel; killed at any call of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import ninelives as nl
from tests.control.lives import LEDGER, WindowStore
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import open_brisk

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
CHILDREN = 3
MENDED = "NINELIVES_TEST_MENDED"


class FamilyServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.control.families; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def _write(line: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{line}\n")


@nl.action(name="act")
async def act(what: str) -> str:
    """Note outside the store that something was done; "break" breaks until it is mended."""
    _write(what)
    if what == "break" and not os.environ.get(MENDED):
        raise nl.Permanent("broken")
    return what


@nl.agent(name="family-child")
async def child(number: int) -> int:
    """Do one thing."""
    await act(f"child {number}")
    return number


@nl.agent(name="family-parent")
async def parent() -> list[int]:
    """Spawn children, then collect what they give."""
    children = await nl.gather(*(nl.spawn(child, number) for number in range(CHILDREN)))
    return [await one.result() for one in children]


@nl.agent(name="family-trip")
async def trip() -> str:
    """Do two things, each with what undoes it, and fail."""
    for what in ("a", "b"):
        nl.on_failure(act, f"undo {what}")
        await act(what)
    return await act("break")


@nl.agent(name="family-fragile")
async def fragile() -> str:
    """Do one thing, then what breaks, then another."""
    return await act("before") + await act("break") + await act("after")


AGENTS: dict[str, Any] = {"parent": parent, "trip": trip, "fragile": fragile}


def work(home: str, agent: str, call: int = 0, side: Side = "before", mended: bool = False) -> int:
    """Start the run or go on with it, until there is nothing to do now; returns the store's calls."""
    os.environ[LEDGER] = str(Path(home) / "ledger")
    os.environ[MENDED] = "yes" if mended else ""

    async def main(rt: nl.Runtime) -> None:
        await rt.start(AGENTS[agent], id="r")
        await rt.work(until_idle=True)

    return _live(home, call, side, main)


def retry(home: str, call: int = 0, side: Side = "before") -> int:
    """Retry the run."""

    async def main(rt: nl.Runtime) -> None:
        await (await rt.get("r")).retry()

    return _live(home, call, side, main)


def fork(home: str, call: int = 0, side: Side = "before") -> int:
    """Fork the run with another result."""

    async def main(rt: nl.Runtime) -> None:
        await (await rt.get("r")).fork("act[1]", result="edited", id="fork")

    return _live(home, call, side, main)


def _live(home: str, call: int, side: Side, main: Any) -> int:
    point = KillPoint(call, side) if call else None
    store: KillingStore = WindowStore(open_brisk(Path(home)), point)

    async def life() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            await main(rt)

    asyncio.run(life())
    return len(store.calls)
