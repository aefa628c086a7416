"""Kill at a system call, or let one fail: strace puts itself between a process and the kernel.

A killed call is not carried out; a failed one is not either, and says so. Needs strace and the right to
trace; without them it is "not run".
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

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


def count_calls(task: str, **args: Any) -> dict[str, int]:
    """Run a task undisturbed and count its calls that change the disk."""
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8", errors="replace") as log:
        done = _trace(["-e", f"trace={','.join(WRITING)}", "-o", log.name], task, args)
        if done.returncode != 0:
            raise AssertionError(f"the task ended with {done.returncode}: {done.stderr[-2000:]}")
        names = (line.split("(", 1)[0].split()[-1] for line in log if "(" in line and "resumed" not in line)
        return dict(Counter(name for name in names if name in WRITING))


def fail_at(task: str, call: str, when: int, **args: Any) -> tuple[int, str, int]:
    """Let the n-th call of a kind fail with EIO; returns the exit code, the file, and how many followed."""
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8", errors="replace") as log:
        flags = ["-y", "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={when}", "-o", log.name]
        code = _trace(flags, task, args).returncode
        before, failed, after = log.read().partition("(INJECTED)")
    if not failed:
        raise AssertionError(f"there was no {call} number {when}")
    file = before.rpartition("<")[2].partition(">")[0]
    return code, file, after.count(f"{call}(")


def kill_at(task: str, call: str, when: int, **args: Any) -> bool:
    """Run a task and kill it at the n-th call of a kind; False if it made fewer."""
    flags = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}", "-o", "/dev/null"]
    return _trace(flags, task, args).returncode in (-9, 137)


def _trace(flags: list[str], task: str, args: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crash.lone", task, msgspec.json.encode(args).decode()]
    return subprocess.run(
        ["strace", "-f", *flags, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
