"""One worker process, as its supervisor sees it: started, heard, asked for its stacks, killed, reaped."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress

import msgspec

from ninelives.core.model.session import Evidence
from ninelives.supervisor import descendants
from ninelives.supervisor.evidence import LastLines, MemoryGroup, judge
from ninelives.supervisor.protocol import KEEPER, LINK_FD, READY, STACK_SIGNAL, WARD, WorkerOrder

_CHUNK = 65536
_MODULE = "ninelives.supervisor.worker_process"


class WorkerProcess:
    """A worker process that we started; alone in its session and process group."""

    def __init__(self, order: WorkerOrder, keeper: str, number: int, now_ms: int) -> None:
        """Start it.

        Raises OSError when the machine has no room for a process.
        """
        self.ward, self.session = f"{keeper}/{number}", order.session
        self.started_ms = self.heard_ms = now_ms
        self.is_ready = False
        self.is_told = False  # that it is to end: then its end costs no life
        self.asked_ms: int | None = None  # for its stacks
        self.hung_seconds: float | None = None
        self.status: os.waitid_result | None = None
        self.tail = LastLines()
        self.link, theirs = socket.socketpair()
        self.output, their_output = os.pipe()
        self.link.setblocking(False)
        os.set_blocking(self.output, False)
        try:
            self.pid = _spawn(order, theirs.fileno(), their_output, {KEEPER: keeper, WARD: self.ward})
        finally:
            theirs.close()
            os.close(their_output)
        self._memory = MemoryGroup(self.pid)

    # Hearing it ---------------------------------------------------------------------------------

    def hear_link(self, now_ms: int) -> bool:
        """Take its beats; False when there will be no more."""
        try:
            heard = self.link.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if heard:
            self.heard_ms = now_ms
            self.is_ready = self.is_ready or READY in heard
            if self.hung_seconds is None:
                self.asked_ms = None
        return bool(heard)

    def hear_output(self) -> list[str] | None:
        """Take what it has written, by line; None when there is nothing any more and never will be."""
        try:
            data = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return []
        return self.tail.feed(data) if data else None

    # Ending it ----------------------------------------------------------------------------------

    def ask_for_stacks(self, now_ms: int) -> None:
        """Make it write the stacks of all its threads."""
        self.asked_ms = now_ms
        self._signal(STACK_SIGNAL)

    def kill(self) -> None:
        """Kill it and its process group."""
        if self.status is None:
            descendants.kill_group(self.pid)
            self._signal(signal.SIGKILL)

    def reap(self, status: os.waitid_result) -> None:
        """Take note of its death, and kill its group while its number is still its own."""
        descendants.kill_group(self.pid)
        os.waitpid(self.pid, 0)
        self.status = status

    def evidence(self) -> Evidence:
        """Say what its death looked like."""
        if self.status is None:
            raise RuntimeError(f"worker {self.pid} lives")
        return judge(
            self.status, ooms=self._memory.kills, hung_seconds=self.hung_seconds, lines=self.tail.lines
        )

    def close(self) -> None:
        """Let go of the pipes."""
        self.link.close()
        os.close(self.output)

    def _signal(self, number: int) -> None:
        if self.status is None:  # not reaped: the number is its own
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _spawn(order: WorkerOrder, link: int, output: int, marks: dict[str, str]) -> int:
    # Not by the command line, which everybody on the machine can read: the URL may hold a password.
    told = os.memfd_create("order")
    os.write(told, msgspec.json.encode(order))
    os.lseek(told, 0, os.SEEK_SET)
    # Numbers above those that they become, so that no step of the shuffle overwrites the next one's source.
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE],
            {**os.environ, **marks, "PYTHONUNBUFFERED": "1"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, told, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, link, LINK_FD),
            ],
            setsid=True,
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD],
            setsigmask=[],
        )
    finally:
        os.close(told)
