"""Going on with a kept store to its end: a worker, a person, and a judge who compares with the world."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ninelives as nl
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, Evidence
from ninelives.stores.open import open_store

ENDS = {
    "talk": "gone", "talk-2": "gone", "talk-2-fork": "gone", "read": 120001, "read-2": 120002,
    "sleep": "after sleep", "turns": "3 turns", "undo": None, "undo-2": None, "cancelled": None,
    "family": ["child quick of family/child-1", "child slow of family/child-2"], "crashed": "crashed",
    "wire-1": "wire-1", "wire-2": "wire-2", "doubt": "paid pay-1", "trip": "booked trip",
    "trip-2": "booked trip", "pay-2": "paid pay-2", "booked": "booked stay",
    "refund": "refunded r-1", "refund-2": "refunded r-2",
    "tried": "net", "pending": "pending", "delayed": "delayed", "later": "booked stay",
}  # fmt: skip
"""What each run gives in the end; None: it has failed or was cancelled."""
DONE = (
    "pay pay-1", "pay pay-2", "book tomb", "book stay", "book trip", "note crashed", "send wire-1",
    "send wire-2", "note after sleep", "note turn 3 took 8", "note undo a of undo-2",
    "note undo b of undo-2", "note read 1", "note read 2", "note child slow of family/child-2",
    "refund r-1", "refund r-2", "flaky net",
    "note pending", "note delayed", "note talked talk-2-fork",
)  # fmt: skip
"""What the world must have seen, each once."""


def carry_on(url: str, ledger: Path) -> list[str]:
    """Work and answer until every run has ended; returns what is wrong then."""
    agents = _declare()
    os.environ[agents.LEDGER] = str(ledger)
    _bury(url)
    return asyncio.run(_carry_on(url, agents)) + _judge(ledger.read_text())


def _declare() -> Any:
    """Declare the agents now, not when tests are collected: other tests have agents of the same names."""
    sys.modules.pop("tests.formats.agents", None)
    return importlib.import_module("tests.formats.agents")


def _bury(url: str) -> None:
    """Say of the workers of before that they are gone, as their supervisor would who has seen them end."""
    store = open_store(url)
    names = [one.id for one in store.list_sessions()]
    seen = Evidence(is_gone=True, signal=9, note="killed when the store was made")
    store.end_sessions(names, Cause.DIED, evidence=dict.fromkeys(names, seen))
    store.close()


async def _carry_on(url: str, agents: Any) -> list[str]:
    async with nl.Runtime(url, lease_seconds=2.0) as rt:
        await rt.start(agents.booker, "stay", id="later")
        for name in ("talk-2", "talk-2-fork", "undo-2", "family/child-2"):
            await (await rt.get(name)).signal("go", "gone", id="g-2")
        for number in (7, 8):
            await (await rt.get("turns")).signal("next", number, id=f"n-{number}")
        wrong, deadline = [], time.monotonic() + 60
        working = asyncio.create_task(rt.work())
        try:
            while not await _is_over(rt):
                if time.monotonic() > deadline:
                    open_runs = {name: str(await (await rt.get(name)).status()) for name in ENDS}
                    return [f"not over: {open_runs}"]
                await _answer(rt)
                await asyncio.sleep(0.05)
        finally:
            working.cancel()
            await asyncio.wait([working])
        for name, wanted in ENDS.items():
            try:
                found: Any = await (await rt.get(name)).result(timeout=5)
            except (nl.RunFailed, nl.RunCancelled):
                found = None
            if found != wanted:
                wrong.append(f"{name} gave {found!r}, not {wanted!r}")
        if await (await rt.get("late")).status() is not State.PENDING:
            wrong.append("late is not pending")
    return wrong + faults_in(url)


def faults_in(url: str) -> list[str]:
    """Return what `verify` finds."""
    store = open_store(url)
    try:
        return [f"{fault.run}: {fault.what}" for fault in store.verify()]
    finally:
        store.close()


async def _is_over(rt: nl.Runtime) -> bool:
    rows = await rt.list(limit=200)
    return all(row.state.is_final for row in rows if row.id in ENDS)


async def _answer(rt: nl.Runtime) -> None:
    for item in await rt.inbox():
        if item.run in ("doubt", "pay-2"):
            await item.settle(happened=True, result=f"paid pay-{1 + (item.run == 'pay-2')}", by="ada")
        elif item.run == "read":
            await item.answer("1", by="ada")
        elif item.run == "refund":
            await item.approve(by="ada")


def _judge(text: str) -> list[str]:
    lines = Counter(line for line in text.splitlines() if not line.startswith("hangs "))
    wrong = [f"done {times} times: {line}" for line, times in lines.items() if times > 1]
    return wrong + [f"never done: {line}" for line in DONE if not lines[line]]


if __name__ == "__main__":
    for line in carry_on(sys.argv[1], Path(sys.argv[2])):
        print(line)
