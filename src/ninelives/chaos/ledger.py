"""The ledger of a trial: what its processes saw and did, line by line, in a file that outlives them.

Each line is one write to a file opened for appending, so a process that is killed leaves whole lines behind.
Times are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

_TEXT_CHARACTERS = 20_000


class What(StrEnum):
    """What a line says."""

    STARTED = "started"  # a process was started
    READY = "ready"  # the agent's code is loaded
    DECLARED = "declared"  # a step that the code declares
    BEGIN = "begin"  # a body begins
    END = "end"  # a body has given its value, or raised
    STORED = "stored"  # a call of the store has returned
    EFFECT = "effect"  # the code touched the world
    TOUCH = "touch"  # the code opened what it may write to
    SENT = "sent"  # more of a request that was announced
    KEY = "key"  # a body asked for its key
    DIVERGED = "diverged"  # a recorded step was asked for with other arguments
    RAISED = "raised"  # the agent's own code has raised
    UNUSED = "unused"  # a recorded step was not asked for, and the run has ended
    MISFIT = "misfit"  # a value that does not come back as it was
    CHANGED = "changed"  # a body changed its arguments
    FAULT = "fault"  # a fault was made
    STATE = "state"  # where the run is when the process leaves it
    USAGE = "usage"  # the process could not begin


class LedgerLine(Struct, kw_only=True, omit_defaults=True):
    """One line. `place` is file:line in the user's code; `data` holds what only one kind of line has."""

    at: float
    life: int
    what: What
    kind: str = ""
    step: str = ""
    target: str = ""
    place: str = ""
    text: str = ""
    is_inside: bool = False
    """Whether it happened inside a step's body."""
    data: dict[str, Any] = {}


_DECODE = msgspec.json.Decoder(LedgerLine).decode


class Ledger:
    """The ledger, as seen from one process that writes to it."""

    def __init__(self, path: Path, life: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._life = life

    def write(self, what: What, **fields: Any) -> None:
        """Write a line."""
        if len(fields.get("text", "")) > _TEXT_CHARACTERS:
            fields["text"] = fields["text"][:_TEXT_CHARACTERS]
        line = LedgerLine(at=time.monotonic(), life=self._life, what=what, **fields)
        os.write(self._fd, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


class LedgerReader:
    """The ledger, as seen from who directs the trial."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.lines: list[LedgerLine] = []

    def read(self) -> list[LedgerLine]:
        """Return the lines that are new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rpartition(b"\n")[0]
        if not whole:
            return []
        self._offset += len(whole) + 1
        new = [_DECODE(line) for line in whole.split(b"\n")]
        self.lines += new
        return new
