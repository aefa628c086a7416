"""`python -m tests.formats.make STORE FOLDER`: make a store with runs in every state, and keep it.

Run it with the code whose format is to be kept. Two lives of a worker, both killed in the middle; a client
who signals, answers, cancels and forks. STORE is sqlite, postgresql or redis.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ninelives as nl
from ninelives.stores.open import open_store
from tests.formats import agents, keep

LEASE_SECONDS = 2.0
HANGS = "crashed,wire-1,before wire-2,trip,pay-2"
STATES = {
    "talk": "completed", "talk-2": "checkpointed", "talk-2-fork": "checkpointed", "read": "checkpointed",
    "read-2": "completed", "sleep": "checkpointed", "turns": "checkpointed", "undo": "failed",
    "undo-2": "checkpointed", "cancelled": "cancelled", "family": "checkpointed", "crashed": "running",
    "wire-1": "running", "wire-2": "running", "doubt": "escalated", "trip": "running",
    "trip-2": "checkpointed", "pay-2": "running", "booked": "completed", "refund": "checkpointed",
    "refund-2": "completed", "tried": "checkpointed",
}  # fmt: skip


def worker(url: str) -> None:
    """Be a worker until killed."""

    async def main() -> None:
        async with nl.Runtime(url, lease_seconds=LEASE_SECONDS) as rt:
            await rt.work()

    asyncio.run(main())


def make(kind: str, folder: Path) -> None:
    """Make the store of a kind and keep it in a folder."""
    with keep.place(kind) as url:
        ledger = folder / f"{kind}.ledger"
        ledger.unlink(missing_ok=True)
        os.environ[agents.LEDGER] = str(ledger)
        asyncio.run(_first_life(url, ledger))
        asyncio.run(_second_life(url, ledger))
        found = open_store(url)
        states = {run: found.read_run(run).state.value for run in STATES}  # type: ignore[union-attr]
        found.close()
        assert states == STATES, {run: state for run, state in states.items() if STATES[run] != state}
        keep.keep(kind, url, folder)


async def _first_life(url: str, ledger: Path) -> None:
    """Complete a run and prune it, and die while another one pays."""
    async with nl.Runtime(url) as rt:
        await rt.start(agents.booker, "tomb", id="pruned")
        await rt.start(agents.payer, "pay-1", id="doubt")
        with _life(url, HANG="pay-1"):
            await _until(lambda: "hangs pay-1" in ledger.read_text() if ledger.exists() else False)
            assert await (await rt.get("pruned")).result() == "booked tomb"
        pruned = rt.store.prune(ended_before_ms=rt.store.now_ms() + 1)  # type: ignore[attr-defined]
        assert pruned.keys == 1


async def _second_life(url: str, ledger: Path) -> None:
    """Bring all runs to where they shall be, and die."""
    with _life(url, HANG=HANGS, BROKEN="net"):
        await _lead(url, ledger)
    async with nl.Runtime(url) as rt:  # it waits for nothing, and so buries nobody
        await rt.start(agents.noter, "pending", id="pending", labels={"team": "blue"})
        await rt.start(agents.noter, "delayed", id="delayed", delay=20.0)
        await rt.start(agents.noter, "late", id="late", delay=3e9)


async def _lead(url: str, ledger: Path) -> None:
    async with nl.Runtime(url) as rt:
        await rt.start(agents.talker, 3, id="talk", labels={"team": "red", "tier": "1"}, priority=2)
        await rt.start(agents.talker, 12, id="talk-2", labels={"team": "blue"})
        for name, agent, *args in (
            ("read", agents.reader), ("read-2", agents.reader), ("sleep", agents.sleeper, 20.0),
            ("turns", agents.turner, 0), ("undo", agents.undoer), ("undo-2", agents.undoer),
            ("cancelled", agents.undoer), ("family", agents.parent), ("crashed", agents.noter, "crashed"),
            ("wire-1", agents.sender, "wire-1"), ("wire-2", agents.sender, "wire-2"),
            ("trip", agents.booker, "trip"), ("pay-2", agents.payer, "pay-2"),
            ("booked", agents.booker, "stay"), ("refund", agents.refunder, "r-1"),
            ("refund-2", agents.refunder, "r-2"), ("tried", agents.trier, "net"),
        ):  # fmt: skip
            await rt.start(agent, *args, id=name, labels={"team": "red"} if name < "s" else None)
        for name in ("talk", "undo"):
            await (await rt.get(name)).signal("go", "gone", id="g-1")
        for number in range(2):
            await (await rt.get("turns")).signal("next", number)
        assert await (await rt.get("talk")).result(timeout=30) == "gone"
        await _until(lambda: "hangs trip" in ledger.read_text())
        await rt.start(agents.booker, "trip", id="trip-2")
        await _answer(rt, "read-2", "2")
        await _answer(rt, "refund-2", None)
        await _parked(rt, "cancelled", "talk-2", "family")
        await (await rt.get("cancelled")).cancel()
        await (await rt.get("talk-2")).fork("think[5]", id="talk-2-fork")
        await (await rt.get("talk-2")).signal("other", {"not": "taken"})
        await _until(lambda: all(f"hangs {what}" in ledger.read_text() for what in HANGS.split(",")))
        await _states(rt, STATES)


async def _answer(rt: nl.Runtime, run: str, value: str | None) -> None:
    while not (items := await rt.inbox(run)):  # noqa: ASYNC110 (another process opens it)
        await asyncio.sleep(0.02)
    await (items[0].approve(by="ada") if value is None else items[0].answer(value, by="ada"))


async def _parked(rt: nl.Runtime, *names: str) -> None:
    await _states(rt, dict.fromkeys(names, "checkpointed"))


async def _states(rt: nl.Runtime, wanted: dict[str, str]) -> None:
    for name, state in wanted.items():
        deadline = time.monotonic() + 40
        while (now := await (await rt.get(name)).status()) != state:
            assert time.monotonic() < deadline, f"{name} is {now}, not {state}"
            await asyncio.sleep(0.02)


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


class _life:  # noqa: N801 (it reads as a word)
    def __init__(self, url: str, **world: str) -> None:
        env = os.environ | {f"FORMATS_{name}": value for name, value in world.items()}
        self._process = subprocess.Popen([sys.executable, "-m", "tests.formats.make", "worker", url], env=env)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2])
    else:
        make(sys.argv[1], Path(sys.argv[2]))
        print(json.dumps({"kept": sys.argv[1]}))
