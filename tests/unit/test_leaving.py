"""Leaving a runtime while it works: the work is ended first, whatever the bodies do."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import run_async

WAIT_SECONDS = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hold plain bodies back until the test is over."""
    held = threading.Event()
    yield held
    held.set()


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("by", ["work", "run"])
def test_work_that_nobody_ended_is_ended_with_the_runtime(
    is_plain: bool, by: str, gate: threading.Event, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = threading.Event()
    complaints: list[dict[str, Any]] = []

    @nl.action(name="pay", resumable=False)
    def pay_plainly() -> int:
        begun.set()
        gate.wait()
        return 1

    @nl.action(name="pay-async", resumable=False)
    async def pay() -> int:
        begun.set()
        await asyncio.Event().wait()
        return 1

    @nl.agent(name="plain payer")
    def plain_agent() -> int:
        return pay_plainly()

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with nl.Runtime(f"sqlite:///{tmp_path / 'runs.db'}") as rt:
            payer: Any = plain_agent if is_plain else agent
            await rt.start(payer, id="run")
            working = asyncio.create_task(rt.work() if by == "work" else rt.run(payer, id="run"))
            await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        await asyncio.wait({working})
        assert working.cancelled()

    run_async(main)  # and does not wait for the body, which has no end
    assert begun.is_set()
    assert complaints == []
    assert "Traceback" not in capfd.readouterr().err


STUBBORN = """
import asyncio, ninelives as nl

@nl.action
async def stubborn() -> int:
    while True:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            pass

@nl.agent
async def agent() -> str:
    asyncio.ensure_future(stubborn())
    await asyncio.sleep(0.05)
    return "done"

print(nl.run(agent, store="sqlite:///runs.db"))
"""

VERIFYING = """
import time, ninelives as nl

def verify() -> nl.NotHappened:
    print("verifying", flush=True)
    time.sleep(60)
    return nl.NotHappened()

@nl.action(resumable=False, verify=verify)
async def pay() -> int:
    raise ConnectionResetError("while the answer was on its way")

@nl.agent
async def agent() -> int:
    return await pay()

nl.run(agent, id="x", store="sqlite:///runs.db")
"""


def test_a_body_that_is_left_behind_leaves_nothing_on_the_screen(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(STUBBORN)
    ended = subprocess.run(
        [sys.executable, "agent.py"],
        cwd=tmp_path,
        timeout=WAIT_SECONDS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "done\n"
    assert "Traceback" not in ended.stderr


def test_an_interrupt_does_not_wait_for_a_plain_verify(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(VERIFYING)
    with subprocess.Popen(
        [sys.executable, "agent.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "verifying\n"
        process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_SECONDS)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
