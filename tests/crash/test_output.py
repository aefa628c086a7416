"""A reader in another process watches through kill -9: the half answer is withdrawn, never two blended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import ninelives as nl

LIMIT_SECONDS = 60.0
WORKER = """
import asyncio, sys
from pathlib import Path
import ninelives as nl

@nl.decision
async def answer(durable: bool) -> str:
    life = len(Path("lives").read_text())
    for number in range(10):
        await nl.emit(f"{life}:{number}")
        if number == 5 and life < 3:
            await asyncio.Event().wait()   # here it is killed
    return f"answer of life {life}"

@nl.agent(name="chat", durability=sys.argv[1])
async def chat() -> str:
    await nl.emit("hello")
    return await answer(True)

with open("lives", "a") as file:
    file.write("x")
print(nl.run(chat, id="chat", store="sqlite:///runs.db"))
"""


@pytest.mark.parametrize("durability", ["strict", "pipelined"])
def test_a_reader_sees_half_answers_withdrawn(tmp_path: Path, durability: str) -> None:
    seen: list[nl.Output] = []
    children: list[subprocess.Popen[bytes]] = []

    def start_worker() -> None:
        children.append(subprocess.Popen([sys.executable, "-c", WORKER, durability], cwd=tmp_path))

    async def watch() -> None:
        async with nl.Runtime(f"sqlite:///{tmp_path / 'runs.db'}") as rt, asyncio.timeout(LIMIT_SECONDS):
            start_worker()
            while not await rt.list():  # noqa: ASYNC110 (there is nobody to wait for yet)
                await asyncio.sleep(0.01)
            async for item in (await rt.get("chat")).stream():
                seen.append(item)
                if item.value in ("1:5", "2:5"):
                    children[-1].kill()
                    children[-1].wait()
                    start_worker()
            assert await (await rt.get("chat")).result() == "answer of life 3"

    try:
        asyncio.run(watch())
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [item.value for item in seen] == [
        "hello",
        *(f"1:{number}" for number in range(6)),
        None,
        *(f"2:{number}" for number in range(6)),
        None,
        *(f"3:{number}" for number in range(10)),
    ]
    assert [item.attempt for item in seen] == [0, *[1] * 6, *[2] * 7, *[3] * 11]
    assert [item.is_retraction for item in seen].count(True) == 2
