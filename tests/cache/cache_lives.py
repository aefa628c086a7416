"""Lives of runs with a cache, in processes of their own; each may die before or after a call of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ninelives as nl
from ninelives.models import cache, install
from tests.crash.forkserver import ForkServer
from tests.crash.killing import KillingStore, KillPoint, Side
from tests.crash.stores import open_brisk

__all__ = ["CacheServer", "asked", "cache", "install", "life"]
nl.Runtime  # noqa: B018 (names are loaded when first used: here, not in every child)
CALLS = ("commit", "create_runs", "read_documents", "write_document")
HOME = Path()


class CacheServer(ForkServer):
    """The fork server, with what these lives import already imported."""

    def __init__(self) -> None:
        code = "import tests.cache.cache_lives; from tests.crash.forkserver import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


class CacheKillingStore(KillingStore):
    """A store that counts, and dies at, the calls that carry a run or its cache on."""

    def _trapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        return super()._trapped(name, method) if name in CALLS else method


def asked(home: Path) -> list[str]:
    """Return what the model was asked, in order."""
    ledger = home / "ledger"
    return ledger.read_text().splitlines() if ledger.exists() else []


@nl.decision(name="k_ask", cache=nl.Cache(ttl=3600, near="words", leads_to_effects=False))
async def ask(question: str) -> str:
    """Ask the model, which counts: no answer is like another."""
    with (HOME / "ledger").open("a") as ledger:
        ledger.write(f"{question}\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return f"answer {len(asked(HOME))}"


@nl.action(name="k_look", reads_only=True)
async def look(text: str) -> str:
    """Change nothing."""
    return text


@nl.agent(name="k_asks")
async def asks(question: str) -> str:
    """Ask, and look at the answer."""
    return await look(await ask(question))


def life(home: str, run: str, question: str, call: int = 0, side: Side = "before") -> dict[str, Any]:
    """Start or resume a run and work until nothing is left; die at a call, if one is stated."""
    global HOME  # noqa: PLW0603
    HOME = Path(home)
    store = CacheKillingStore(open_brisk(HOME), KillPoint(call, side) if call else None)

    async def main() -> Any:
        async with nl.Runtime(cast("Any", store)) as rt:
            begun = await rt.start(asks, question, id=run)
            await rt.work(until_idle=True)
            return await begun.result(timeout=30)

    result = asyncio.run(main())
    return {"result": result, "calls": len(store.calls)}
