"""The fork server: runs tasks in forked children, kills them, and says how they ended.

The server is a small process of its own, without threads and without an open store, so that each fork is
a clean start that costs milliseconds. A task is any function `module:name` that takes and returns what
JSON can hold. A child can be killed at a call of its store (see `killing`), or by the server at a moment
after the child's first acknowledgement. Every child has a deadline. If the server dies, its children die.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from tests.crash import processes

ack_fd = -1
"""In a child: write a byte here at the first acknowledgement."""

_LAST_WORDS_SECONDS = 2.0
_PRELOAD = (
    "ninelives.stores.postgres",
    "ninelives.stores.redis",
    "ninelives.stores.sqlite",
    "ninelives.engine.commit.committer",
    "tests.crash.judge",
    "tests.crash.mutants",
    "tests.crash.workload",
)


class Job(Struct, frozen=True):
    """A task, and when to kill it: so many seconds after its first acknowledgement, or its start."""

    task: str
    args: dict[str, Any]
    kill_after_seconds: float | None = None
    kill_from: Literal["ack", "start"] = "ack"
    deadline_seconds: float = 60.0


class Death(Struct, frozen=True):
    """How a child ended."""

    code: int
    seconds: float
    hung: bool = False
    answer: Any = None
    stderr: str = ""

    @property
    def was_killed(self) -> bool:
        """Tell whether it died by SIGKILL, and in time."""
        return self.code == -9 and not self.hung

    def result(self) -> Any:
        """Return the task's answer.

        Raises AssertionError with what the child had to say when it did not come to its end.
        """
        if self.code != 0:
            end = "hung" if self.hung else f"ended with {self.code}"
            raise AssertionError(f"the child {end} after {self.seconds:.1f} s\n{self.stderr[-4000:]}")
        return self.answer


class ForkServer:
    """The server, as seen from who gives it jobs; one job at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.crash.forkserver import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the server and what runs in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(
        self,
        task: str,
        *,
        kill_after_seconds: float | None = None,
        kill_from: Literal["ack", "start"] = "ack",
        deadline_seconds: float = 60.0,
        **args: Any,
    ) -> Death:
        """Run a task in a fresh child and return how it ended."""
        job = Job(task, args, kill_after_seconds, kill_from, deadline_seconds)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the fork server ended with {self._process.wait()}")
        return msgspec.json.decode(line, type=Death)


def serve() -> None:
    """Be the server: a job per line on stdin, a death per line on stdout."""
    out = os.dup(1)
    os.dup2(2, 1)
    for name in _PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that children do not copy our pages only to look at them
    decoder = msgspec.json.Decoder(Job)
    for line in sys.stdin.buffer:
        assert threading.active_count() == 1, threading.enumerate()
        death = msgspec.json.encode(_run(decoder.decode(line))) + b"\n"
        while death:
            death = death[os.write(out, death) :]


def _run(job: Job) -> Death:
    answer, stderr = os.memfd_create("answer"), os.memfd_create("stderr")
    ack_reader, ack_writer = os.pipe()
    began = time.monotonic()
    pid = processes.fork(lambda: _be_child(job, answer, stderr, ack_writer))
    os.close(ack_writer)
    hung = _watch(job, pid, ack_reader, began + job.deadline_seconds)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seconds = time.monotonic() - began
    told = _content(answer)
    death = Death(
        code,
        seconds,
        hung,
        msgspec.json.decode(told) if told and code == 0 else None,
        _content(stderr).decode(),
    )
    for fd in (answer, stderr, ack_reader):
        os.close(fd)
    return death


def _be_child(job: Job, answer: int, stderr: int, ack_writer: int) -> None:
    global ack_fd  # noqa: PLW0603 (set once in a fresh process, before anything runs in it)
    ack_fd = ack_writer
    os.dup2(stderr, 2)
    os.dup2(stderr, 1)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
    module, _, name = job.task.partition(":")
    told = getattr(importlib.import_module(module), name)(**job.args)
    os.write(answer, msgspec.json.encode(told))


def _watch(job: Job, pid: int, ack_reader: int, deadline: float) -> bool:
    """Wait for the child's end, killing it when its time has come; True if it hung."""
    fd = os.pidfd_open(pid)
    try:
        if job.kill_after_seconds is not None:
            wait_for = [fd, ack_reader] if job.kill_from == "ack" else [fd]
            if job.kill_from == "ack":
                select.select(wait_for, [], [], deadline - time.monotonic())
            if not select.select([fd], [], [], job.kill_after_seconds)[0]:
                os.kill(pid, 9)
                return False
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGUSR2)  # where it stands goes to its stderr
            select.select([fd], [], [], _LAST_WORDS_SECONDS)
            os.kill(pid, signal.SIGKILL)
            return True
    finally:
        os.close(fd)
    return False


def _content(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0)
