"""Fork servers: start the processes of trials in milliseconds, each from a clean state.

A fork server has loaded Python, Nine Lives and the store's driver. It has no threads and no user code; every
process loads that itself. Two servers with different hash seeds take turns, because processes of one parent
would all iterate a set in the same order. If the controlling process dies, the servers and their processes
die.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from ninelives.chaos.protocol import LifeSettings

_PR_SET_PDEATHSIG = 1
_PRELOAD = (
    "ninelives.chaos.process.trial_process",
    "ninelives.engine.protected.non_resumable",
    "ninelives.engine.agent.children",
)
_SEEDS = ("1", "2")


class Begin(Struct, tag="begin"):
    """Command: start a process."""

    settings: LifeSettings


class ProcessSignal(Struct, tag="signal"):
    """Command: send a signal to a process that has not ended."""

    pid: int
    number: int


class ProcessBegun(Struct, tag="begun"):
    """Answer: a process was started."""

    pid: int


class ProcessGone(Struct, tag="gone"):
    """Answer: a process has ended, with its exit code or (negative) signal."""

    pid: int
    code: int


_COMMAND: msgspec.json.Decoder[Begin | ProcessSignal] = msgspec.json.Decoder(Begin | ProcessSignal)
_ANSWER: msgspec.json.Decoder[ProcessBegun | ProcessGone] = msgspec.json.Decoder(ProcessBegun | ProcessGone)


class ForkServer:
    """A fork server, as the controlling process sees it."""

    def __init__(self, seed: str, backend: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-m", "ninelives.chaos.trial.fork_server", backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed},
            start_new_session=True,  # Ctrl-C must reach only us; we end the server
        )
        self._rest = b""
        self._answers: list[ProcessBegun | ProcessGone] = []
        self.codes: dict[int, int] = {}

    def begin(self, settings: LifeSettings) -> int:
        """Start a process; return its id."""
        self._send(Begin(settings))
        while True:
            for at, answer in enumerate(self._answers):
                if isinstance(answer, ProcessBegun):
                    del self._answers[at]
                    return answer.pid
            self._receive(None)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process; does nothing if it has ended."""
        self._send(ProcessSignal(pid, number))

    def gone(self, pid: int, timeout_seconds: float) -> int | None:
        """Wait for a process to end; return its exit code, None if it is still running."""
        if pid not in self.codes:
            self._receive(timeout_seconds)
        return self.codes.get(pid)

    def close(self) -> None:
        """End the server and its processes."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, command: Begin | ProcessSignal) -> None:
        assert self._process.stdin is not None  # noqa: S101 (a pipe was asked for)
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        self._process.stdin.flush()

    def _receive(self, timeout_seconds: float | None) -> None:
        assert self._process.stdout is not None  # noqa: S101
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], timeout_seconds)[0]:
            return
        data = os.read(pipe, 65536)
        if not data:
            raise RuntimeError(f"the fork server exited with {self._process.wait()}")
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            answer = _ANSWER.decode(line)
            if isinstance(answer, ProcessGone):
                self.codes[answer.pid] = answer.code
            else:
                self._answers.append(answer)


class ForkServers:
    """The fork servers, used in turn."""

    def __init__(self, backend: str) -> None:
        self._servers = [ForkServer(seed, backend) for seed in _SEEDS]
        self._turn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for server in self._servers:
            server.close()

    def next(self) -> ForkServer:
        """Return the next server."""
        self._turn += 1
        return self._servers[self._turn % len(self._servers)]


# The process --------------------------------------------------------------------------------------


def serve() -> None:
    """Run the server process: read commands from stdin, write answers to stdout, until stdin closes."""
    _die_with_parent()
    out = os.dup(1)
    os.dup2(2, 1)
    for name in (*_PRELOAD, *sys.argv[1:]):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    processes: dict[int, int] = {}  # pid → pidfd
    rest = b""
    while True:
        ready, _, _ = select.select([0, *processes.values()], [], [])
        for pid, fd in list(processes.items()):
            if fd in ready:
                os.close(processes.pop(pid))
                _send_answer(out, ProcessGone(pid, _collected(pid)))
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            command = _COMMAND.decode(line)
            if isinstance(command, Begin):
                pid = _fork(command.settings)
                processes[pid] = os.pidfd_open(pid)
                _send_answer(out, ProcessBegun(pid))
            elif command.pid in processes:
                os.kill(command.pid, command.number)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
        _collected(pid)
    os._exit(0)


def _send_answer(out: int, answer: ProcessBegun | ProcessGone) -> None:
    os.write(out, msgspec.json.encode(answer) + b"\n")


def _collected(pid: int) -> int:
    """Reap a process: kill its group, return its exit code."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # the id cannot have been reused: we have not reaped it yet
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(settings: LifeSettings) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with_parent()
        os.setsid()
        log = os.open(Path(settings.home) / "output", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 64)
        from ninelives.chaos.process.trial_process import live

        live(settings)
    except BaseException:  # noqa: BLE001 (whatever the error, the child must not continue as a fork server)
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve()
