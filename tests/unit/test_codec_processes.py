"""Values that one process wrote come back equal in another that has done nothing else yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ninelives.core.values.codec import codec_for
from tests.unit import named_types


@pytest.mark.parametrize("kind", ["named", "sample"])
def test_values_of_every_type_come_back_equal_in_a_fresh_process(tmp_path: Path, kind: str) -> None:
    for half in ("encode", "decode"):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.unit.fresh_process", half, kind, str(tmp_path / "values")],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


LIVES = """
import asyncio, sys
from dataclasses import dataclass
import ninelives as nl

@dataclass
class Zahlung:
    an: str
    beträge: int = 0

@nl.decision
async def plan(zahlung: Zahlung) -> Zahlung:
    return Zahlung(zahlung.an, zahlung.beträge + 1)

@nl.agent
async def agent(zahlung: Zahlung) -> int:
    planned = await plan(zahlung)
    more = await nl.receive("more", type=Zahlung)
    return zahlung.beträge + planned.beträge + more.beträge

async def main(life):
    async with nl.Runtime("sqlite:///runs.db") as rt:
        if life == "start":
            await rt.start(agent, Zahlung("ann", 42), id="r")
        elif life == "signal":
            await (await rt.get("r")).signal("more", Zahlung("bob", 100))
        await rt.work(until_idle=True) if life == "work" else None
        if life == "result":
            print(await (await rt.get("r")).result(timeout=10))

asyncio.run(main(sys.argv[1]))
"""


def test_arguments_results_and_signals_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "lives.py").write_text(LIVES, encoding="utf-8")
    for life in ("start", "work", "signal", "work", "result"):
        told = subprocess.run(
            [sys.executable, "lives.py", life], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
    assert told == "185\n"


def test_types_with_ascii_names_still_go_the_fast_way() -> None:
    assert codec_for(named_types.Botschaft).decoder is not None  # msgspec's own structs know their names
    assert codec_for(list[named_types.Zahlung]).decoder is None
