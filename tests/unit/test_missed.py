"""A worker without a supervisor whose process is gone is missed on its own machine, whatever the store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

import ninelives as nl
from ninelives.core.model.run import StepKind
from ninelives.core.model.session import Cause, Fate, NewSession
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.context import StepPosition, WatchedFrame
from ninelives.engine.machine import host, is_missed, machine
from ninelives.engine.protected.left_processes import is_at_work
from ninelives.stores.clock import SystemClock
from tests.replay.lifetimes import QuickStore, run_async

NAMESAKE = f"{machine()}~00000000"


@nl.agent(name="missed.quick")
async def quick() -> int:
    return 7


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


@pytest.mark.parametrize(
    ("where", "keeper", "is_dead", "is_ended"),
    [
        (host(), "", True, True),
        (host(), "", False, False),
        (host(), "its-supervisor", True, False),
        (NAMESAKE, "", True, False),
        (machine(), "", True, False),
    ],
)
def test_who_left_runs_is_missed_where_its_process_was(
    dead: int, where: str, keeper: str, is_dead: bool, is_ended: bool
) -> None:
    store = QuickStore()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            run = await rt.start(quick, id="left")
            session = NewSession(
                id="other", host=where, pid=dead if is_dead else os.getpid(), keeper=keeper, lease_ms=60_000
            )
            store.register_session(session)
            store.claim_runs("other", 1, {"missed.quick": 1}, queues=["default"])
            await rt.work(until_idle=True)
            if is_ended:
                assert await run.result() == 7

    run_async(main)
    other = store.read_session("other")
    assert other is not None
    assert (other.cause is Cause.DIED, other.fate is Fate.GONE) == (is_ended, is_ended)


def test_nobody_is_missed_by_a_number_that_names_no_process() -> None:
    assert not is_missed(host(), 0)
    assert not is_missed(host(), -1)
    assert not is_missed(host(), os.getpid())


@contextmanager
def headless() -> Iterator[int]:
    """Yield the number of a child process whose first thread has ended, and another has not."""
    goes_on = (
        "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start(); print(flush=True); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", goes_on], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as lives:
        assert lives.stdout is not None
        lives.stdout.readline()
        stat = Path(f"/proc/{lives.pid}/stat")
        deadline = time.monotonic() + 60
        while " Z " not in stat.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield lives.pid
        finally:
            lives.kill()


def test_a_zombie_is_missed_and_a_process_whose_first_thread_has_ended_is_not() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert is_missed(host(), dead.pid)
    dead.wait(60)
    with headless() as lives:
        assert not is_missed(host(), lives)


def test_a_child_process_whose_first_thread_has_ended_is_at_work() -> None:
    frame = WatchedFrame(
        cast("StepPosition", None), cast("Fingerprint", None), StepKind.ACTION, SystemClock().boot_ms()
    )
    assert not is_at_work(frame)
    with headless():
        assert is_at_work(frame)
