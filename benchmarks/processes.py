"""Processes under test: each in a group of its own, ended with all that it started, however we end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.programs.play import ROOT, die_with_parent

_PATIENCE_SECONDS = 180.0


class Failed(Exception):
    """A program did not do what it was asked for; says why."""


class Ended(NamedTuple):
    """What a program said, and how long it lived."""

    said: str
    seconds: float


@contextmanager
def started(
    words: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    is_told: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that is killed at the end of the block, with its whole group.

    `is_told` gives it pipes for what it is told and says; else it reads nothing and says it to the log.
    """
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE if is_told else subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_told else errors,
            stderr=errors,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
        )
    try:
        yield process
    finally:
        end_group(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started here, and all of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(
    words: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    dies: bool = False,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Ended:
    """Run a program to its end.

    Raises Failed when it fails, takes too long, or does not die although it should.
    """
    began = time.perf_counter()
    with started(words, log=log, environment=environment, is_told=True) as process:
        try:
            said, _ = process.communicate(timeout=patience_seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {patience_seconds:.0f} s") from None
        took = time.perf_counter() - began
    if process.returncode != (-signal.SIGKILL if dies else 0):
        raise Failed(f"exit {process.returncode}: {_last_line(log)}")
    return Ended(said.decode(), took)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"
