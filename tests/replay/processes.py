"""Lives as real processes over a durable store, killed with SIGKILL: at its calls, and at random."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import ninelives as nl
from tests.crash import forkserver
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import bury, open_at, open_brisk
from tests.replay import agents
from tests.replay.judge import judge
from tests.replay.lives import MortalStore
from tests.replay.programs import program_of
from tests.replay.world import World, read

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
LIFE = "tests.replay.processes:life"


class ReplayServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.replay.processes; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def life(home: str, seed: int, number: int, call: int = 0, side: Side = "before") -> int:
    """Start or resume a program in this process and work until nothing is left; returns the store's calls."""
    program, run = program_of(seed), f"r{seed}"
    world = World(seed, Path(home) / "ledger", number)
    world.next_life()
    agents.WORLDS[run] = world
    point = KillPoint(call, side) if call else None
    store = KillingStore(MortalStore(open_brisk(Path(home)), world, None), point)
    os.write(forkserver.ack_fd, b"!")

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            await rt.start(program.agent, seed, 0, "", id=run)
            await rt.work(until_idle=True)

    asyncio.run(main())
    return len(store.calls)


def perform(server: ForkServer, home: Path, seed: int, rng: Random) -> tuple[int, list[str]]:
    """Kill a program's lives, let the last one end, and judge it; returns how many were killed."""
    deaths = 0
    for number in range(rng.randint(1, 3)):
        args: dict[str, Any] = {"home": str(home), "seed": seed, "number": number}
        if rng.random() < 0.6:
            side = rng.choice(("before", "after"))
            death = server.run(LIFE, **args, call=rng.randint(1, 25), side=side)
        else:
            death = server.run(LIFE, **args, kill_after_seconds=rng.uniform(0.0, 0.06))
        if not death.was_killed:
            death.result()
        deaths += death.was_killed
        bury(home)
    server.run(LIFE, home=str(home), seed=seed, number=9).result()
    store = open_at(home)
    try:
        return deaths, judge(store, program_of(seed), f"r{seed}", read(home / "ledger"))
    finally:
        store.close()
