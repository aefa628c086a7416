"""Skipped time: a life that is killed while it skips leaves the next one a clock that it can read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ninelives.chaos.process.clock import SkippedTime
from ninelives.core.model.run import RunQuery, State
from ninelives.store import Store


class Sleeping:
    """A store with one run in it, which sleeps until a time."""

    def __init__(self, due_ms: int) -> None:
        self._run = SimpleNamespace(due_ms=due_ms)

    def list_runs(self, query: RunQuery) -> list[SimpleNamespace]:
        """Return the run, to who asks for those that sleep."""
        return [self._run] if State.CHECKPOINTED in query.states else []

    def now_ms(self) -> int:
        """Stand still."""
        return 1_000


def skip(home: Path, due_ms: int) -> None:
    SkippedTime(home).skip(cast("Store", Sleeping(due_ms)))


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_meanwhile(act: Callable[[], None]) -> int:
    """Do it in a process of its own; returns the signal that it died of."""
    pid = os.fork()
    if not pid:
        act()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


def skipped_ms(home: Path) -> int:
    return SkippedTime(home)._ms


def test_killed_before_a_skip_is_in_place_the_next_life_skips_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip(tmp_path, 3_000)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        assert killed_meanwhile(lambda: skip(tmp_path, 4_000)) == signal.SIGKILL
    assert skipped_ms(tmp_path) == 2_000, "as before"
    skip(tmp_path, 4_000)
    assert skipped_ms(tmp_path) == 5_000


def test_killed_while_a_skip_is_written_the_next_life_can_read_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin_to_write(path: Path, _: str) -> None:
        path.open("w").close()
        die()

    skip(tmp_path, 3_000)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", begin_to_write)
        assert killed_meanwhile(lambda: skip(tmp_path, 4_000)) == signal.SIGKILL
    assert skipped_ms(tmp_path) == 2_000


class EndingChild(Sleeping):
    """A store with a parent that waits for a child, which ends after the first look at the runs."""

    def __init__(self) -> None:
        super().__init__(due_ms=0)
        self._looks = 0

    def list_runs(self, query: RunQuery) -> list[SimpleNamespace]:
        """Return the child while it is awake, and the parent, which is due from the child's end on."""
        self._looks += 1
        if State.CHECKPOINTED not in query.states:
            return [self._run] if self._looks == 1 else []
        return [SimpleNamespace(due_ms=None) if self._looks == 1 else self._run]


def test_a_child_that_ends_between_two_reads_does_not_strand_its_parent(tmp_path: Path) -> None:
    assert SkippedTime(tmp_path).skip(cast("Store", EndingChild()))
