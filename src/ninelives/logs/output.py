"""Where lines of the log go. A log that is closed, full or not read never stops a worker: lines are dropped.

A worker's lines go to its supervisor by a pipe, which takes each line whole or not at all. The supervisor's
go to stderr by a thread of their own: its reader may have stopped.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from ninelives.logs.fields import RunFields
from ninelives.logs.formats import MOST_BYTES, JsonFormatter, TextFormatter, fitted, time_text
from ninelives.logs.log_format import LogFormat
from ninelives.views.escape import json_text, shown

_MOST_LINES = 10_000
_CLOSE_SECONDS = 2.0


# In a worker --------------------------------------------------------------------------------------


class PipeHandler(logging.Handler):
    """Writes records to a pipe without ever waiting for its reader."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd, self._lost, self._is_cut = _without_waiting(fd), 0, False
        self.addFilter(RunFields())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as lost."""
        lines = [line.encode(errors="backslashreplace")[: MOST_BYTES - 1] for line in self._lines(record)]
        try:
            if self._lost:
                note = logging.makeLogRecord({"name": "ninelives", "levelno": logging.WARNING})
                note.levelname, note.msg = "WARNING", f"{self._lost} lines of this log were lost: it was full"
                self._write(f"{self.format(note)}\n".encode())
                self._lost = 0
            for line in lines:
                self._write(line + b"\n")
        except OSError:  # full or closed
            self._lost += 1

    def _write(self, line: bytes) -> None:
        line = b"\n" + line if self._is_cut else line
        self._is_cut = os.write(self._fd, line) < len(line)
        if self._is_cut:  # no pipe, but a file on a disk that has become full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _lines(self, record: logging.LogRecord) -> list[str]:
        try:
            return self.format(record).split("\n")
        except Exception:  # noqa: BLE001 (a record that cannot be formatted must not stop a run)
            self.handleError(record)
            return []


def _without_waiting(fd: int) -> int:
    """Return another descriptor of the same pipe that does not block; the given one stays as it is."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return fd


def set_up(form: LogFormat) -> None:
    """Set up logging in a worker, after its code is loaded: logging that the code has set up stays.

    With JSON, handlers that write to the terminal are replaced: each line must be JSON.
    """
    root, ours = logging.getLogger(), logging.getLogger("ninelives")
    for handler in list(root.handlers):
        is_terminal = isinstance(handler, logging.StreamHandler) and handler.stream in (
            sys.stdout,
            sys.stderr,
        )
        if form is LogFormat.JSON and is_terminal:
            root.removeHandler(handler)
        else:
            handler.addFilter(RunFields())
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    if not root.handlers or form is LogFormat.JSON:
        handler = PipeHandler(2)
        handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
        root.addHandler(handler)


# In the supervisor --------------------------------------------------------------------------------


class CutLine(OSError):
    """Only a part of a line was written."""


class LogPrinter:
    """Prints lines on a thread of its own; drops them, and says so, when nothing reads or keeps them."""

    def __init__(self, form: LogFormat, write: Callable[[str], None]) -> None:
        self._form, self._write = form, write
        self._queue: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
        self._lost, self._is_cut = 0, False
        self._thread = threading.Thread(target=self._print, name="ninelives-log", daemon=True)
        self._thread.start()

    def report(self, line: str, level: int = logging.INFO) -> None:
        """Print a line of the supervisor."""
        self._put(shaped(self._form, line, level))

    def on_output(self, worker: int, line: str) -> None:
        """Print a line of a worker: in JSON with the worker as a field, in text with it as a prefix."""
        if self._form is LogFormat.JSON:
            self._put(with_field(line, worker))
        else:
            self._put(f"worker {worker}: {shown(line)}")

    def close(self) -> None:
        """Print what is left, if that is possible soon."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._queue.put(None, timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _put(self, line: str) -> None:
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._lost += 1

    def _print(self) -> None:
        while (line := self._queue.get()) is not None:
            if not self._is_written(line):
                self._lost += 1
            elif self._lost:
                lost, self._lost = self._lost, 0
                note = f"{lost} lines of this log were lost: it was full"
                if not self._is_written(shaped(self._form, note, logging.WARNING)):
                    self._lost += lost

    def _is_written(self, line: str) -> bool:
        try:
            self._write(f"\n{line}" if self._is_cut else line)
        except (OSError, ValueError) as error:  # closed or full: the workers go on
            self._is_cut |= isinstance(error, CutLine)
            return False
        self._is_cut = False
        return True


def shaped(form: LogFormat, line: str, level: int = logging.INFO) -> str:
    """Return a line of the supervisor, with time and level."""
    severity = logging.getLevelName(level)
    if form is LogFormat.TEXT:
        return f"{time_text(time.time())} {severity:<7} {shown(line)}"
    named = {"msg": line, "logger": "ninelives.supervisor"}
    return fitted({"ts": time_text(time.time(), "T"), "severity": severity, **named})


def with_field(line: str, worker: int) -> str:
    """Return a worker's line as JSON: an object gets the field `worker`, any other line becomes `msg`."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        at = time_text(time.time(), "T")
        return fitted({"ts": at, "severity": "INFO", "msg": line, "logger": "output", "worker": worker})
    # As it was written, whatever its numbers are; only nothing that controls a terminal.
    text = json_text(line.strip().encode(errors="backslashreplace"))
    if not found or "worker" in found:
        return text
    return f'{text[:-1]},"worker":{worker}}}'


def print_line(line: str) -> None:
    """Write a line to stderr, and wait until it is written. Raises OSError; CutLine."""
    whole = rest = f"{line}\n".encode(errors="backslashreplace")
    while rest:
        try:
            rest = rest[os.write(2, rest) :]
        except BlockingIOError:
            select.select((), (2,), (), 1.0)
        except OSError as error:
            if len(rest) < len(whole):
                raise CutLine(error.errno, error.strerror) from error
            raise
