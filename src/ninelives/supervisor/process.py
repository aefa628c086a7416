"""A worker process as its supervisor sees it: start it, read its beats and output, kill it, reap it."""

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
from ninelives.supervisor.protocol import (
    LINK_FD,
    READY,
    STACK_SIGNAL,
    SUPERVISOR_MARK,
    WORKER_MARK,
    WorkerSettings,
)

_CHUNK = 65536
_MODULE = "ninelives.supervisor.worker_process"


class WorkerProcess:
    """A worker process that we started, the leader of its own session and process group."""

    def __init__(self, settings: WorkerSettings, supervisor: str, number: int, now_ms: int) -> None:
        """Start it; `supervisor` is the supervisor's mark.

        Raises OSError when the machine cannot start another process.
        """
        self.mark, self.session = f"{supervisor}/{number}", settings.session
        self.started_ms = self.beat_ms = now_ms
        self.is_ready = False
        self.is_stopping = False  # we stopped it on purpose: its end costs no life
        self.stacks_requested_ms: int | None = None
        self.hung_seconds: float | None = None
        self.status: os.waitid_result | None = None
        self.tail = LastLines()
        self.link, theirs = socket.socketpair()
        self.output, their_output = os.pipe()
        self.link.setblocking(False)
        os.set_blocking(self.output, False)
        try:
            self.pid = _spawn(
                settings, theirs.fileno(), their_output, {SUPERVISOR_MARK: supervisor, WORKER_MARK: self.mark}
            )
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(their_output)
        self._memory = MemoryGroup(self.pid)

    # Reading ------------------------------------------------------------------------------------

    def read_beats(self, now_ms: int) -> bool:
        """Read its beats; False when its end of the link is closed."""
        try:
            received = self.link.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if received:
            self.beat_ms = now_ms
            self.is_ready = self.is_ready or READY in received
            # It beats again before it was killed: forget the request, a later hang gets a second of its own.
            if self.hung_seconds is None:
                self.stacks_requested_ms = None
        return bool(received)

    def read_output(self) -> list[str] | None:
        """Return the lines it has written since the last call; None at end of file."""
        try:
            data = os.read(self.output, _CHUNK)
        except BlockingIOError:
            return []
        return self.tail.feed(data) if data else None

    # Ending -------------------------------------------------------------------------------------

    def ask_for_stacks(self, now_ms: int) -> None:
        """Make it print the stacks of all its threads."""
        self.stacks_requested_ms = now_ms
        self._signal(STACK_SIGNAL)

    def kill(self) -> None:
        """Kill it and its process group."""
        if self.status is None:
            descendants.kill_group(self.pid)
            self._signal(signal.SIGKILL)

    def reap(self, status: os.waitid_result) -> None:
        """Reap it, but first kill its process group while the number cannot be reused yet."""
        descendants.kill_group(self.pid)
        os.waitpid(self.pid, 0)
        self.status = status

    def evidence(self) -> Evidence:
        """Return the evidence of its death."""
        if self.status is None:
            raise RuntimeError(f"worker {self.pid} is still running")
        return judge(
            self.status, ooms=self._memory.kills, hung_seconds=self.hung_seconds, lines=self.tail.lines
        )

    def close(self) -> None:
        """Close link and output."""
        self.link.close()
        os.close(self.output)

    def _signal(self, number: int) -> None:
        if self.status is None:  # not reaped yet, so the pid cannot be reused
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _spawn(settings: WorkerSettings, link: int, output: int, marks: dict[str, str]) -> int:
    # Not on the command line, which every user of the machine can read: the URL may hold a password.
    message = os.memfd_create("settings")
    os.write(message, msgspec.json.encode(settings))
    os.lseek(message, 0, os.SEEK_SET)
    # All source descriptors are above their targets, so no dup2 overwrites the source of a later one.
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE],
            {**os.environ, **marks, "PYTHONUNBUFFERED": "1"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, message, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, link, LINK_FD),
            ],
            # A session and group of its own: Ctrl-C in the terminal stops
            # the supervisor alone, which then kills the whole group.
            setsid=True,
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD],
            setsigmask=[],
        )
    finally:
        os.close(message)
