"""A policy file reads taint; a worker that takes over after kill -9 finds the same labels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.core.model.session import Cause
from ninelives.store import Store
from tests.crash.stores import open_brisk
from tests.replay.lifetimes import QuickStore, run_async

POLICY = """
[policy]
name = "careful"
default = "allow"

[[rule]]
id = "after-the-web"
actions = ["mail-out"]
when = "tainted('web')"
do = "DO"
why = "The run has read web pages."
"""


@nl.action(name="look-up", reads_only=True, taint="web")
async def look_up(home: str) -> str:
    """Read a page; once only, by the ledger."""
    with (Path(home) / "reads").open("a", encoding="utf-8") as ledger:
        ledger.write("read\n")
    return "page"


@nl.action(name="mail-out", resumable=False)
async def mail_out(home: str, text: str) -> str:
    """Send, where everybody can see it."""
    with (Path(home) / "sent").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{text}\n")
    return "sent"


@nl.agent(name="tainted.clerk")
async def clerk(home: str) -> str:
    """Mail before and after a page was read."""
    await mail_out(home, "before")
    await look_up(home)
    await nl.receive("go")
    try:
        return await mail_out(home, "after")
    except nl.Denied as no:
        return no.what


async def work(home: Path, store: Store, do: str = "deny") -> None:
    """Start the run, or go on with it, until nothing can be worked on."""
    (home / "policy.toml").write_text(POLICY.replace("DO", do))
    async with nl.Runtime(store, policy=str(home / "policy.toml")) as rt:
        await rt.start(clerk, str(home), id="run")
        await rt.work(until_idle=True)


def sent(home: Path) -> str:
    """Return what was sent."""
    return (home / "sent").read_text()


@pytest.mark.parametrize("do", ["deny", "ask"])
def test_a_rule_denies_or_asks_once_the_run_is_tainted(tmp_path: Path, do: str) -> None:
    store = QuickStore()
    run_async(lambda: work(tmp_path, store, do))
    store.send_signal("run", "go", b"null")
    run_async(lambda: work(tmp_path, store, do))
    row = store.read_run("run")
    assert row is not None
    assert (row.state, sent(tmp_path)) == ("checkpointed" if do == "ask" else "completed", "before\n")
    if do == "ask":
        (item,) = store.list_inbox()
        assert "The run has read web pages." in item.body.decode()

        async def approved() -> None:
            async with nl.Runtime(store, policy=str(tmp_path / "policy.toml")) as rt:
                (waiting,) = await rt.inbox(item.run)
                await waiting.approve(by="ada")
                await rt.work(until_idle=True)

        run_async(approved)
        assert sent(tmp_path) == "before\nafter\n"


def test_a_worker_that_takes_over_finds_the_labels(ground: Path) -> None:
    command = [sys.executable, "-c", _WORKER, str(ground)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"waits\n"
        os.kill(worker.pid, 9)
    store = open_brisk(ground)
    store.end_sessions([one.id for one in store.list_sessions()], Cause.DIED)
    store.send_signal("run", "go", b"null")
    run_async(lambda: work(ground, store))
    row = store.read_run("run")
    assert row is not None
    assert (row.state, sent(ground), (ground / "reads").read_text()) == ("completed", "before\n", "read\n")
    assert store.verify() == []
    store.close()


_WORKER = """
import asyncio, sys
from pathlib import Path
from tests.crash.stores import open_brisk
from tests.governance import test_taint_policy as scene

async def main(home):
    store = open_brisk(home)
    working = asyncio.create_task(scene.work(home, store))
    while (row := store.read_run("run")) is None or "go" not in row.waits:
        await asyncio.sleep(0.01)
    print("waits", flush=True)
    await working
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""
