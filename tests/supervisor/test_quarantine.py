"""An agent that kills its own worker, under the real supervisor: quarantine, and new lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ninelives.core.journal.answers import read_item_body
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import State
from tests.supervisor.fleets import PATIENCE_SECONDS, Home, Up, wait_until

LIVES = 2
DEATHS = LIVES + 2  # the first two make it a suspect; only those that it dies alone cost lives
INNOCENT = [f"innocent{number}" for number in range(5)]

AGENTS = f"""
import os, signal
from pathlib import Path
import ninelives as nl

def note(*words):
    fd = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)

@nl.action
async def fatal() -> str:
    deaths = Path("ledger").read_text().count("kills") if Path("ledger").exists() else 0
    if deaths < {DEATHS + 1}:
        note(nl.info().run, "kills", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    return "mended"

@nl.action
async def work(number: int) -> int:
    return number

@nl.agent(lives={LIVES})
async def poison() -> str:
    await work(0)
    return await fatal()

@nl.agent(lives={LIVES})
async def innocent() -> int:
    return sum([await work(number) for number in range(3)])
"""


def open_items(home: Home) -> list[Item]:
    """Return what waits for a person."""
    store = home.open()
    try:
        return store.list_inbox()
    finally:
        store.close()


def test_a_run_that_kills_its_worker_is_quarantined_and_retry_gives_it_new_lives(tmp_path: Path) -> None:
    home = Home(tmp_path, AGENTS)
    home.start("poison", agent="poison")
    home.start(*INNOCENT, agent="innocent")
    with Up(home, "--backoff", "0.1") as up:
        wait_until(lambda: open_items(home), f"the run was not quarantined: {up.log}")
        home.completed(*INNOCENT)
        assert home.state("poison") is State.ESCALATED
        assert len(home.noted("poison", "kills")) == DEATHS
        (item,) = open_items(home)
        asked = read_item_body(item)
        assert item.kind is ItemKind.QUARANTINE
        assert f"out of lives: {DEATHS} workers died while they executed this run" in asked.what
        assert f"during the last {LIVES} it ran solo" in asked.what
        assert list(asked.evidence) == [f"death {number}" for number in range(1, LIVES + 1)]
        assert all("killed by SIGKILL" in seen for seen in asked.evidence.values()), asked.evidence
        command = [sys.executable, "-m", "ninelives", "resolve", "poison", "--retry", "--store", home.url]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        home.completed("poison")
    assert len(home.noted("poison", "kills")) == DEATHS + 1  # it had lives again
    assert open_items(home) == []
