"""Lives of governed runs, in processes of their own; each may die before or after a call of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ninelives as nl
from ninelives.core.governance.accounts import Reserve
from ninelives.core.governance.verdicts import Allow, Ask, Deny, Rewrite
from ninelives.core.model.totals import OUTCOMES
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import open_brisk
from tests.governance.small_governor import SmallGovernor, governed, records_of

nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
WRITES = ("commit", "create_runs", "answer_item")
ACCOUNT, AMOUNT = "budget/day", 60
HOME = Path()


class GateServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.governance.gate_lives; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


class WriteKillingStore(KillingStore):
    """A store that counts, and dies at, the calls that carry a run on."""

    def _trapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        return super()._trapped(name, method) if name in WRITES else method


def effects(home: Path) -> list[str]:
    """Return what was done, in order."""
    ledger = home / "ledger"
    return ledger.read_text().split() if ledger.exists() else []


def _done(cents: int) -> int:
    with (HOME / "ledger").open("a") as ledger:
        ledger.write(f"{cents}\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return cents


async def _on_file(cents: int, key: str) -> Any:
    return nl.Happened(cents) if str(cents) in effects(HOME) else nl.NotHappened()


@nl.action(name="g_plain")
async def plain(cents: int) -> int:
    """Do it; it may be repeated."""
    return _done(cents)


@nl.action(name="g_once", resumable=False, verify=_on_file)
async def once(cents: int) -> int:
    """Do it once."""
    return _done(cents)


@nl.action(name="g_keyed", resumable=False, key="g:{cents}", verify=_on_file)
async def keyed(cents: int) -> int:
    """Do it once, under a key."""
    return _done(cents)


@nl.action(name="g_shared", key="gs:{cents}")
async def shared(cents: int) -> int:
    """Do it under a key; it may be repeated."""
    return _done(cents)


@nl.agent(name="gate.helper")
async def helper(cents: int) -> int:
    """Do it in a run of its own."""
    return _done(cents)


STEPS: dict[str, Any] = {"g_plain": plain, "g_once": once, "g_keyed": keyed, "g_shared": shared}
VERDICTS: dict[str, Any] = {
    "allow": Allow(),
    "deny": Deny("never"),
    "ask": Ask(approvals=2),
    "rewrite": lambda call: Rewrite({"cents": 100}),
    "budget": Allow(),
}


@nl.agent(name="gate.works")
async def works(kind: str, cents: int) -> Any:
    """Call one step, or spawn a child."""
    try:
        if kind == "spawn":
            return await (await nl.spawn(helper, cents)).result()
        return await STEPS[kind](cents)
    except nl.Denied:
        return "denied"


def life(home: str, kind: str, mode: str, call: int = 0, side: Side = "before") -> dict[str, Any]:
    """Start or resume the run, and work and answer until nothing is left; die at a call, if one is stated."""
    global HOME  # noqa: PLW0603
    HOME = Path(home)
    store = WriteKillingStore(open_brisk(HOME), KillPoint(call, side) if call else None)
    action = "gate.helper" if kind == "spawn" else kind
    governor = SmallGovernor({action: VERDICTS[mode]})
    if mode == "budget":
        governor.estimates[action] = (Reserve(ACCOUNT, {"cents": AMOUNT}, {"cents": 1_000}),)

    async def main() -> dict[str, Any]:
        async with governed(cast("Any", store), governor) as rt:
            run = await rt.start(works, kind, 5, id="run")
            known = [one for one in records_of(cast("Any", store)) if one.kind in OUTCOMES]
            people = iter(("ann", "bob", "cid", "dan"))
            await rt.work(until_idle=True)
            while items := await rt.inbox():
                await items[0].approve(by=next(people))
                await rt.work(until_idle=True)
            state = await run.status()
            asked = [one.action for one in governor.judged if one.action == action]
            return {
                "state": state.value,
                "result": await run.result() if state == "completed" else None,
                "calls": len(store.calls),
                "asked": len(asked) if known else 0,
            }

    return asyncio.run(main())
