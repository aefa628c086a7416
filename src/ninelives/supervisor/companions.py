"""Companions: other `ninelives` commands that `up` runs beside its workers, such as `metrics`.

Each is a process of its own, restarted when it dies, with growing pauses: a companion that fails costs no
worker anything, also at the first start. `up` refuses wrong settings before that. A companion ends with its
supervisor, whatever kills that. It may be killed at any moment.
If we die here: the kernel kills the companions; the next supervisor starts its own.
"""

from __future__ import annotations

import logging
import os
import re
import selectors
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from ninelives.core.clock import Clock
from ninelives.supervisor import descendants
from ninelives.supervisor.evidence import LastLines, judge
from ninelives.supervisor.protocol import SUPERVISOR_MARK, WORKER_MARK
from ninelives.supervisor.slot import FIRST_PAUSE_MS, LONG_LIFE_MS

_CHUNK = 65536
_LEVEL = re.compile(
    r"(ninelives: )?((?P<level>WARNING|warning|ERROR|error|CRITICAL)\b|[A-Z]\w+: |"
    r"Traceback \(most recent|[1-9][\d,]* faults)"
)
_LONGEST_PAUSE_MS = 30_000
_MODULE = "ninelives.supervisor.companion_process"


def level_of(line: str) -> int:
    """Return the level of logging of a line that a command prints: errors begin with their class."""
    found = _LEVEL.match(line)
    if found is None:
        return logging.INFO
    return logging.WARNING if found["level"] in ("WARNING", "warning") else logging.ERROR


class Companion(Struct, frozen=True):
    """A command to keep running: its name for people, and its words after `ninelives`.

    The store's URL is not among the words: it may hold a password, and is passed in the environment.
    """

    name: str
    words: tuple[str, ...]


class CompanionProcess:
    """One companion: its process while it lives, and when it is to be started again."""

    def __init__(self, companion: Companion, mark: str) -> None:
        self.companion, self.mark = companion, mark
        self.pid: int | None = None
        self.output = -1
        self.tail = LastLines()
        self.started_ms = 0
        self.restart_at_ms = 0
        self.short_lives = 0

    def start(self, url: str, supervisor: str, now_ms: int) -> None:
        """Start it. Raises OSError when the machine cannot start another process."""
        self.output, theirs = os.pipe()
        os.set_blocking(self.output, False)
        marks = {SUPERVISOR_MARK: supervisor, WORKER_MARK: self.mark, "NINELIVES_STORE": url}
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", _MODULE, str(os.getpid()), *self.companion.words],
                {**os.environ, **marks, "PYTHONUNBUFFERED": "1"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, theirs, 1),
                    (os.POSIX_SPAWN_DUP2, theirs, 2),
                ],
                setsid=True,  # Ctrl-C in the terminal stops the supervisor alone, which then kills the group
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD],
                setsigmask=[],
            )
        except BaseException:
            os.close(self.output)
            raise
        finally:
            os.close(theirs)
        self.started_ms = now_ms

    def remove(self, now_ms: int) -> int:
        """Forget its dead process; return the pause, in milliseconds, before the next start."""
        os.close(self.output)
        self.pid = None
        self.short_lives = self.short_lives + 1 if now_ms - self.started_ms < LONG_LIFE_MS else 0
        pause_ms = 0
        if self.short_lives:
            pause_ms = min(_LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(self.short_lives - 1, 16))
        self.restart_at_ms = now_ms + pause_ms
        return pause_ms


class Companions:
    """All companions of a supervisor."""

    def __init__(
        self,
        companions: Sequence[Companion],
        url: str,
        mark: str,
        clock: Clock,
        selector: selectors.BaseSelector,
        report: Callable[[str, int], None],
    ) -> None:
        """`mark` is the supervisor's; `report` gets lines of output, and each end, with levels of logging."""
        self._url, self._mark, self._clock = url, mark, clock
        self._selector, self._report = selector, report
        self._all = [CompanionProcess(one, f"{mark}/{one.name}") for one in companions]

    @property
    def pids(self) -> set[int]:
        """The processes that live."""
        return {one.pid for one in self._all if one.pid is not None}

    @property
    def marks(self) -> set[str]:
        """The marks in the environments of their processes."""
        return {one.mark for one in self._all}

    def deadlines(self, now_ms: int) -> list[int]:
        """Return in how many milliseconds companions are to be started."""
        return [one.restart_at_ms - now_ms for one in self._all if one.pid is None]

    def restart(self) -> None:
        """Start those that are due."""
        now_ms = self._clock.boot_ms()
        for one in self._all:
            if one.pid is None and one.restart_at_ms <= now_ms:
                try:
                    one.start(self._url, self._mark, now_ms)
                except OSError as error:
                    why = f"cannot be started: {error.strerror}; trying again"
                    self._report(f"{one.companion.name} {why}", logging.WARNING)
                    one.restart_at_ms = now_ms + _LONGEST_PAUSE_MS
                else:
                    self._selector.register(one.output, selectors.EVENT_READ, lambda one=one: self._read(one))

    def reap(self, status: os.waitid_result) -> None:
        """Note the end of a process. The caller reaps it afterwards."""
        for one in self._all:
            if one.pid == status.si_pid:
                self._ended(one, status)

    def _ended(self, one: CompanionProcess, status: os.waitid_result) -> None:
        descendants.kill_group(status.si_pid)
        self._read(one)
        for line in one.tail.end():
            self._pass_on(one, line)
        with suppress(KeyError, ValueError):
            self._selector.unregister(one.output)
        evidence = judge(status, ooms=0, hung_seconds=None, lines=())
        pause_ms = one.remove(self._clock.boot_ms())
        said = f"{one.companion.name} {evidence.note}; restarting in {pause_ms / 1000:g} s"
        self._report(said, logging.WARNING)

    def _read(self, one: CompanionProcess) -> None:
        with suppress(BlockingIOError):
            while data := os.read(one.output, _CHUNK):
                for line in one.tail.feed(data):
                    self._pass_on(one, line)
            # End of file: its death comes as a signal; until then, select must not spin on it.
            with suppress(KeyError):
                self._selector.unregister(one.output)

    def _pass_on(self, one: CompanionProcess, line: str) -> None:
        self._report(f"{one.companion.name}: {line}", level_of(line))

    def stop(self) -> None:
        """Kill them all, without replacement; the caller reaps them."""
        for pid in self.pids:
            descendants.kill_group(pid)
        self._all = []
