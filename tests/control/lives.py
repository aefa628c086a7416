"""What the processes of these tests do: work, send, cancel; killed before or after any call of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import ninelives as nl
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import open_brisk

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
WORK, SEND, CANCEL = (f"tests.control.lives:{name}" for name in ("work", "send", "cancel"))
LETTERS = 2
LEDGER = "NINELIVES_TEST_LEDGER"


class ControlServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.control.lives; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


@nl.action(name="file")
async def file(letter: int) -> int:
    """Note outside the store that a letter was filed."""
    _write(f"{letter}\n")
    return letter


def _write(line: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(line)


@nl.agent(name="correspondent")
async def correspondent() -> list[int]:
    """Receive letters, file each, and rest after each."""
    filed = []
    for _ in range(LETTERS):
        filed.append(await file(await nl.receive("letter", type=int)))
        await nl.sleep(0.1)
    return filed


def work(home: str, call: int = 0, side: Side = "before") -> int:
    """Start the run or go on with it, until there is nothing to do now; returns the store's calls."""
    os.environ[LEDGER] = str(Path(home) / "ledger")
    store = _store(home, call, side)

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            await rt.start(correspondent, id="r")
            await rt.work(until_idle=True)

    asyncio.run(main())
    return len(store.calls)


def send(home: str, letter: int, call: int = 0, side: Side = "before") -> int:
    """Send a letter, once, however often this is done."""
    store = _store(home, call, side)

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            await (await rt.get("r")).signal("letter", letter, id=f"letter {letter}")

    asyncio.run(main())
    return len(store.calls)


def cancel(home: str, call: int = 0, side: Side = "before") -> int:
    """Cancel the run."""
    store = _store(home, call, side)

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            await (await rt.get("r")).cancel()

    asyncio.run(main())
    return len(store.calls)


class WindowStore(KillingStore):
    """Traps at the calls that read or write something; clocks and waiting are no windows."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return found if name in ("now_ms", "wait_for_work", "close") else super().__getattr__(name)


def _store(home: str, call: int, side: Side) -> KillingStore:
    return WindowStore(open_brisk(Path(home)), KillPoint(call, side) if call else None)
