"""What the supervisor decides without processes: evidence, pauses, the last lines."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ninelives.supervisor.evidence import LastLines, is_stop, judge
from ninelives.supervisor.process import WorkerProcess
from ninelives.supervisor.protocol import WorkerSettings
from ninelives.supervisor.slot import LONG_LIFE_MS, WorkerSlot


def status(code: int, value: int) -> os.waitid_result:
    return cast("os.waitid_result", SimpleNamespace(si_code=code, si_status=value))


@pytest.mark.parametrize(
    ("code", "value", "ooms", "hung", "words", "stop"),
    [
        (os.CLD_EXITED, 0, 0, None, "exited with code 0, though no stop was requested", False),
        (os.CLD_EXITED, 70, 1, None, "exited with code 70", False),
        (os.CLD_KILLED, signal.SIGKILL, 0, None, "killed by SIGKILL", False),
        (os.CLD_KILLED, signal.SIGKILL, 1, None, "killed by the kernel: out of memory", False),
        (os.CLD_KILLED, signal.SIGKILL, 1, 31.0, "blocked for 31 s", False),
        (os.CLD_DUMPED, signal.SIGSEGV, 1, None, "killed by SIGSEGV", False),
        (os.CLD_KILLED, signal.SIGTERM, 0, None, "killed by SIGTERM", True),
        (os.CLD_KILLED, 63, 0, None, "signal 63", False),
    ],
)
def test_a_death_is_described_as_it_was(
    code: int, value: int, ooms: int, hung: float | None, words: str, stop: bool
) -> None:
    found = judge(status(code, value), ooms=ooms, hung_seconds=hung, lines=["last"])
    assert words in found.note
    assert is_stop(found) is stop
    assert found.log == ("last",)
    assert not found.is_gone


def test_a_first_death_is_mended_at_once_and_a_crash_loop_waits_longer_and_longer() -> None:
    slot, now_ms, pauses = WorkerSlot(1, 5_000), 0, []
    for _ in range(12):
        child = cast("Any", SimpleNamespace(started_ms=now_ms))
        slot.fill(child)
        now_ms += 1
        pauses.append(slot.remove(child, now_ms, is_stop=False))
    assert pauses[:4] == [0, 100, 200, 400]
    assert pauses[-1] == 5_000
    child = cast("Any", SimpleNamespace(started_ms=now_ms))
    slot.fill(child)
    assert slot.remove(child, now_ms + LONG_LIFE_MS, is_stop=False) == 0


def test_the_tail_keeps_whole_lines_and_ends_the_last() -> None:
    tail = LastLines()
    assert tail.feed(b"one\ntw") == ["one"]
    assert tail.feed(b"o\r\n\xff") == ["two"]
    assert tail.end() == ["\\xff"]
    assert tail.lines == ("one", "two", "\\xff")
    assert len(tail.feed(b"x" * 100_000)) == 1  # a line without an end is cut, not kept for ever


def test_a_worker_that_cannot_be_started_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        WorkerProcess(WorkerSettings(target="agents", url="memory:"), "mark", 1, 0)
    assert sorted(os.listdir("/proc/self/fd")) == before
