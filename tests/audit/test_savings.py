"""What recoveries saved: an agent that is killed again and again, and a ledger that it does not know of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.crash.stores import address

AGENT = """
import asyncio, os, signal
import ninelives as nl

LEDGER = os.environ["LEDGER"]

def note(*words):
    with open(LEDGER, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

async def die_once(name):
    if not os.path.exists(f"{LEDGER}.{name}"):
        open(f"{LEDGER}.{name}", "w").close()
        await asyncio.sleep(0.8)  # the entry about the last recovery is written by then
        os.kill(os.getpid(), signal.SIGKILL)

@nl.decision
async def think(number: int) -> dict:
    note("body", number)
    await asyncio.sleep(0.02)
    if number in (2, 4):
        await die_once(f"think{number}")
    return {"model": "gpt-4o", "usage": {"prompt_tokens": 100 + number, "completion_tokens": 10}}

async def paid(*, key: str):
    return nl.Happened("paid")

@nl.action(resumable=False, verify=paid)
async def pay() -> str:
    note("paid")
    await die_once("pay")
    return "paid"

@nl.agent
async def agent() -> str:
    note("life")
    for number in range(6):
        await think(number)
        note("got", number)
    return await pay()
"""


def ran(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LEDGER": str(home / "ledger"), "NINELIVES_STORE": address(home)}
    return subprocess.run(
        [sys.executable, "-m", "ninelives", *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_figures_are_those_of_an_outside_ledger(ground: Path) -> None:
    (ground / "agent.py").write_text(AGENT)
    codes: list[int] = []
    while not codes or codes[-1] < 0:
        assert len(codes) < 6
        codes.append(ran("run", "agent.py:agent", "--id", "r", home=ground).returncode)
    assert codes == [-9, -9, -9, 0]
    replayed, redone = ledger(ground)
    done = ran("savings", "--since", "1h", "--json", "--manual-minutes", "30", "--plot", "p.svg", home=ground)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["runs"], found["recoveries"]) == (1, 3)
    assert found["decisions"] == len(replayed)
    assert found["tokens"] == sum(110 + number for number in replayed)
    assert found["step_seconds"] >= 0.02 * len(replayed)
    (model,) = found["models"]
    assert (model["model"], model["decisions"]) == ("gpt-4o", len(replayed))
    assert (model["tokens_in"], model["tokens_out"]) == (sum(100 + n for n in replayed), 10 * len(replayed))
    assert found["redone"] == {"decision": redone}
    assert found["settled"] == {"not_repeated": 1, "started_again": 0, "people": 0}
    assert found["person_hours"] == 1.5
    assert 0 < found["lost_seconds"] < 60
    assert (ground / "ledger").read_text().count("paid") == 1
    tree = ET.parse(ground / "p.svg").getroot()
    assert f"{found['steps']:,} steps" in "".join(tree.itertext())
    assert priced(found)


def ledger(home: Path) -> tuple[list[int], int]:
    """Return which decisions were delivered without their body, life by life, and how many began again."""
    replayed: list[int] = []
    bodies: list[int] = []
    begun: set[int] = set()
    for line in (home / "ledger").read_text().splitlines():
        kind, *rest = line.split()
        if kind == "life":
            begun = set()
        elif kind == "body":
            begun.add(int(rest[0]))
            bodies.append(int(rest[0]))
        elif kind == "got" and int(rest[0]) not in begun:
            replayed.append(int(rest[0]))
    return replayed, len(bodies) - len(set(bodies))


def priced(found: dict[str, Any]) -> bool:
    """Return whether money is what the price list says, or nothing is claimed without one."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return bool(found["money"] is None and found["unpriced_tokens"] == found["tokens"])
    (model,) = found["models"]
    usage = Usage(input_tokens=model["tokens_in"], output_tokens=model["tokens_out"])
    wanted = float(calc_price(usage, model_ref="gpt-4o").total_price)
    return bool(found["money"] == pytest.approx(wanted) and found["unpriced_tokens"] == 0)


def test_an_empty_period_claims_nothing(ground: Path) -> None:
    (ground / "agent.py").write_text(
        "import ninelives as nl\n@nl.agent\nasync def agent() -> int:\n    return 1\n"
    )
    assert ran("run", "agent.py:agent", home=ground).returncode == 0
    found = json.loads(ran("savings", "--json", home=ground).stdout)
    assert (found["recoveries"], found["tokens"], found["money"], found["person_hours"]) == (0, 0, None, None)
    assert ran("savings", "--minute-price", "1", home=ground).returncode == 2
    assert "recoveries" in ran("savings", home=ground).stdout.lower()
    away = ran("savings", "--plot", "no/such/plot.svg", home=ground)
    assert away.returncode == 2
    assert "cannot be written" in away.stderr
