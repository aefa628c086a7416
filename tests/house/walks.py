"""Tiny programs, watched: through how many modules one step goes, and what it asks of the store.

`python -m tests.house.walks` prints the numbers as JSON. It has a process of its own, because it profiles
every thread; the store is a SQLite file in a temporary directory.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from itertools import pairwise
from types import FrameType
from typing import Any

import ninelives as nl
from ninelives.engine.spec.registry import AGENTS
from ninelives.store import Store
from ninelives.stores.open import open_store

KEYED_ACTIONS = 300
_TIMES = 20
_QUIET = {"url", "identity", "lossy", "now_ms", "close", "wait_for_work", "wait_for_output"}
_STORE = ("ninelives.stores.sqlite.store", "ninelives.stores.shared.checked_store")
_STORE_CALLS = {name for name in vars(Store) if not name.startswith("_")} - _QUIET


class Walk:
    """Notes each call of a function of ours, in every thread that began after it was installed."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[int, str, str]] = []
        self.found: dict[str, dict[str, int]] = {}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Note one call, but no comprehension: some versions of Python make a function of these."""
        if self.is_on and event == "call" and not frame.f_code.co_name.endswith(("comp>", "expr>")):
            module = str(frame.f_globals.get("__name__"))
            if module.startswith("ninelives."):
                self.calls.append((threading.get_ident(), module, frame.f_code.co_name))

    async def over(self, name: str, step: Any) -> None:
        """Call a step twice to warm up, then watch it; keep the shortest walk: other threads lengthen it."""
        for n in range(_TIMES):
            self.calls, self.is_on = [], True
            await step(n)
            self.is_on = False
            modules = [module for _, module, _ in self.calls]
            walked = {
                "calls": len(modules),
                "modules": len(set(modules)),
                "switches": sum(one != other for one, other in pairwise(modules)),
                "threads": len({thread for thread, _, _ in self.calls}),
                "store calls": sum(
                    module in _STORE and called in _STORE_CALLS for _, module, called in self.calls
                ),
            }
            if n == 2 or (n > 2 and walked["calls"] < self.found[name]["calls"]):
                self.found[name] = walked


WALK = Walk()


@nl.action
async def house_plain(n: int) -> int:
    return n


@nl.action(resumable=False, key="house:{n}")
async def house_keyed(n: int) -> int:
    return n


@nl.agent
async def house_strict() -> None:
    await WALK.over("strict", house_plain)


@nl.agent
async def house_protected() -> None:
    await WALK.over("keyed", house_keyed)


@nl.agent
async def house_replayed() -> None:
    await WALK.over("replay", house_plain)
    await nl.receive("go")


@nl.agent
async def house_many() -> None:
    for n in range(KEYED_ACTIONS):
        await house_keyed(1_000 + n)


async def replay(store: str) -> None:
    """Park a run at its receive, and have it executed again from its journal."""
    async with nl.Runtime(store) as runtime:
        run = await runtime.start(house_replayed, id="replayed")
        await runtime.work(until_idle=True)
        await run.signal("go")
        await runtime.work(until_idle=True)


async def idle(url: str) -> None:
    """Be a worker that has none of the agents; print how often it claimed until a line was read."""
    store: Any = open_store(url)
    claim, count = store.claim_runs, 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == 1:
            print("ready", flush=True)
        return claim(*args, **kwargs)

    AGENTS.clear()
    nl.agent(name="house_idle")(replay)
    store.claim_runs = counted
    async with nl.Runtime(store) as runtime:
        working = asyncio.create_task(runtime.work())
        await asyncio.to_thread(sys.stdin.readline)
        print(count, flush=True)
        working.cancel()
        await asyncio.wait([working])
    store.close()


def claims_of_an_idle_worker(url: str) -> int:
    """Count them, in a process of its own, while this one carries out keyed actions."""
    program = "import asyncio, sys; from tests.house import walks; asyncio.run(walks.idle(sys.argv[1]))"
    worker = subprocess.Popen(
        [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    nl.run(house_many, id="many", store=url)
    return int(worker.communicate("enough\n")[0])


def main() -> None:
    """Walk, and print what was found."""
    with tempfile.TemporaryDirectory() as directory:
        claims = claims_of_an_idle_worker(f"sqlite:///{directory}/idle.db")
        open_store(url := f"sqlite:///{directory}/walks.db").close()
        threading.setprofile(WALK.note)
        sys.setprofile(WALK.note)
        nl.run(house_strict, id="strict", store=url)
        nl.run(house_protected, id="keyed", store=url)
        asyncio.run(replay(url))
        sys.setprofile(None)
    print(json.dumps({**WALK.found, "idle": {"claims": claims}}))


if __name__ == "__main__":
    main()
