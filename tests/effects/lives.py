"""Lives of agents that pay, in processes of their own; the first one dies in a stated window."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import ninelives as nl
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Kind
from ninelives.engine.worker import session
from tests.crash import forkserver
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side, kill_self
from tests.crash.stores import AnyStore, open_brisk
from tests.effects.service import ask, receive, send

WINDOWS = ("intent committed", "request sent", "response received", "result uncommitted", "result committed")
nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
PORT = 0
WINDOW = ""
CLIENT_SECONDS = 45.0


class EffectsServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.effects.lives; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def reach(window: str) -> None:
    """Die here, if this is where."""
    if window == WINDOW:
        kill_self()


async def pay_at(order: str, **options: str) -> dict[str, Any]:
    """Pay at the service, through all windows."""
    reach("intent committed")
    reader, writer = await send(PORT, "/pay", order=order, key=nl.key(), **options)
    reach("request sent")
    receipt = await receive(reader, writer)
    reach("response received")
    return receipt


async def on_file(order: str, key: str) -> Any:
    """Look whether it was paid."""
    paid = (await ask(PORT, "/paid", order=order))["paid"]
    return nl.Happened(paid[0]) if paid else nl.NotHappened()


@nl.action(name="verified", resumable=False, verify=on_file)
async def verified(order: str) -> dict[str, Any]:
    """Pay once; what is not known is looked up."""
    return await pay_at(order)


@nl.action(name="dropped", resumable=False, verify=on_file)
async def dropped(order: str) -> dict[str, Any]:
    """Pay once, at a service that drops its reply."""
    return await pay_at(order, drop="1")


@nl.action(name="stopped", resumable=False, verify=on_file, timeout=1)
async def stopped(order: str) -> dict[str, Any]:
    """Pay once; the process is stopped between intent and effect, and may wake later than anybody waits."""
    if WINDOW == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    return await pay_at(order)


@nl.action(name="blind", resumable=False)
async def blind(order: str) -> dict[str, Any]:
    """Pay once; what is not known is a person's to say."""
    return await pay_at(order)


@nl.action(name="resumable")
async def resumable(order: str) -> dict[str, Any]:
    """Pay again and again under one key, which the service knows."""
    return await pay_at(order, dedup="1")


@nl.action(name="keyed", resumable=False, key="pay:{order}", verify=on_file)
async def keyed(order: str) -> dict[str, Any]:
    """Pay once per order, whoever asks."""
    return await pay_at(order)


@nl.action(name="keyed-resumable", key="pay:{order}")
async def keyed_resumable(order: str) -> dict[str, Any]:
    """Pay under one key per order, which the service knows."""
    return await pay_at(order, dedup="1")


PAYING = {
    "verified": verified,
    "dropped": dropped,
    "stopped": stopped,
    "blind": blind,
    "resumable": resumable,
    "keyed": keyed,
    "keyed-resumable": keyed_resumable,
}


@nl.agent(name="effects.payer")
async def payer(kind: str, order: str) -> dict[str, Any]:
    """Pay for an order."""
    return await PAYING[kind](order)


class WindowStore:
    """A store that dies around the commit of the result."""

    def __init__(self, store: AnyStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Any) -> list[Verdict]:
        """Commit, and die before or after it if it is the window."""
        tells = any(record.kind is Kind.RESULT for one in batch for record in one.records)
        if tells:
            reach("result uncommitted")
        verdicts = self._store.commit(batch)
        if tells:
            reach("result committed")
        return verdicts


def life(home: str, port: int, kind: str, order: str, window: str = "") -> dict[str, Any]:
    """Start or resume a payment and work until nothing is left; returns where the run is."""
    _set(port, window)
    store = WindowStore(open_brisk(Path(home)))

    async def main() -> dict[str, Any]:
        async with nl.Runtime(cast("Any", store)) as rt:
            run = await rt.start(payer, kind, order, id=order)
            await rt.work(until_idle=True)
            state = await run.status()
            items = [item.id for item in await rt.inbox()]
            return {
                "state": state.value,
                "items": items,
                "result": await run.result() if state == "completed" else None,
            }

    return asyncio.run(main())


def answer(home: str, port: int, happened: bool, number: int = 0) -> None:
    """Answer the one question in the inbox, while no worker lives."""
    _set(port, "")

    async def main() -> None:
        async with nl.Runtime(cast("Any", open_brisk(Path(home)))) as rt:
            (item,) = await rt.inbox()
            if happened:
                await item.settle(happened=True, result={"order": "o", "number": number}, by="ann")
            else:
                await item.settle(happened=False, by="ann")

    asyncio.run(main())


def racer(
    home: str, port: int, kind: str, run: str, order: str, call: int = 0, side: Side = "before"
) -> dict[str, Any]:
    """Race for a key, as one of two processes; die at a call of the store, if one is stated."""
    _set(port, "")
    point = KillPoint(call, side) if call else None
    store = KillingStore(open_brisk(Path(home)), point)
    os.write(forkserver.ack_fd, b"!")

    async def main() -> Any:
        async with nl.Runtime(cast("Any", store)) as rt:
            handle = await rt.start(payer, kind, order, id=run)
            working = asyncio.create_task(rt.work())
            try:
                return await handle.result(CLIENT_SECONDS)
            finally:
                working.cancel()
                await asyncio.wait({working})

    return {"result": asyncio.run(main()), "calls": len(store.calls)}


def zombie(home: str, port: int, order: str, *, elsewhere: bool = False) -> None:
    """Begin a payment under a short lease, and be stopped in it: here, or on another machine."""
    _set(port, "stopped")
    if elsewhere:
        vars(session)["host"] = lambda: "elsewhere~00000000"

    async def main() -> None:
        async with nl.Runtime(cast("Any", open_brisk(Path(home))), lease_seconds=0.5) as rt:
            await rt.start(payer, "stopped", order, id=order)
            await rt.work()

    asyncio.run(main())


def _set(port: int, window: str) -> None:
    global PORT, WINDOW
    PORT, WINDOW = port, window
