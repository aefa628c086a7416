"""Kill at a system call, or let one fail: strace puts itself between a process and the kernel.

A killed call is not carried out; a failed one is not either, and says so. The task waits in a child of the
fork server until strace has hold of it, so that nothing but its own calls is counted. Needs strace and the
right to trace; without them it is "not run".
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from typing import Any

from tests.crash import processes
from tests.crash.forkserver import Death, ForkServer

_TRACED = "tests.crash.syscalls:traced"
_PATIENCE_SECONDS = 60.0

WRITING = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "rename", "unlink", "mkdir", "fallocate")
"""The calls that change what is on disk, as SQLite and we make them."""


def reason_not_to() -> str:
    """Say why this cannot be done here; empty if it can."""
    if shutil.which("strace") is None:
        return "needs strace"
    tried = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False, timeout=30
    )
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()[-200:]}"


def count_calls(server: ForkServer, task: str, **args: Any) -> dict[str, int]:
    """Run a task undisturbed and count its calls that change the disk."""
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8", errors="replace") as log:
        done = _trace(server, ["-e", f"trace={','.join(WRITING)}", "-o", log.name], task, args)
        if done.result() != 0:
            raise AssertionError(f"the task ended with {done.answer}: {done.stderr[-2000:]}")
        names = (line.split("(", 1)[0].split()[-1] for line in log if "(" in line and "resumed" not in line)
        return dict(Counter(name for name in names if name in WRITING))


def fail_at(server: ForkServer, task: str, call: str, when: int, **args: Any) -> tuple[int, str, int]:
    """Let the n-th call of a kind fail with EIO; returns the exit code, the file, and how many followed."""
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8", errors="replace") as log:
        flags = ["-y", "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={when}", "-o", log.name]
        code: int = _trace(server, flags, task, args).result()
        before, failed, after = log.read().partition("(INJECTED)")
    if not failed:
        raise AssertionError(f"there was no {call} number {when}")
    file = before.rpartition("<")[2].partition(">")[0]
    return code, file, after.count(f"{call}(")


def kill_at(server: ForkServer, task: str, call: str, when: int, **args: Any) -> bool:
    """Run a task and kill it at the n-th call of a kind; False if it made fewer."""
    flags = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}", "-o", "/dev/null"]
    return bool(_trace(server, flags, task, args).result() == -9)


def _trace(server: ForkServer, flags: list[str], task: str, args: dict[str, Any]) -> Death:
    return server.run(
        _TRACED, deadline_seconds=2 * _PATIENCE_SECONDS, flags=flags, traced_task=task, traced_args=args
    )


def traced(flags: list[str], traced_task: str, traced_args: dict[str, Any]) -> int:
    """Run a task under strace, and return how it ended; a task of the fork server."""
    gate_reader, gate_writer = os.pipe()

    def work() -> None:
        os.close(gate_writer)
        if processes.read_byte(gate_reader) == b"":
            os._exit(1)
        module, _, name = traced_task.partition(":")
        getattr(importlib.import_module(module), name)(**traced_args)

    pid = processes.fork(work)
    with subprocess.Popen(["strace", "-f", *flags, "-p", str(pid)], stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        line = strace.stderr.readline()  # it says so when it has hold of it
        if b"attached" in line:
            os.write(gate_writer, b"g")
        os.close(gate_writer)
        code = processes.collect(pid, _PATIENCE_SECONDS)
        told = line + strace.stderr.read()
    if b"attached" not in line:
        raise AssertionError(f"strace did not get hold of the task: {told.decode(errors='replace')}")
    return code
