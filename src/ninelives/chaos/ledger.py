"""The ledger of a trial: an append-only file in which its processes log what they see and do.

Each line is a single write in append mode, so a killed process leaves only whole lines. Times are from the
monotonic clock, which all processes of a machine share.
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
OUTCOMES = frozenset({"result", "failure", "signal", "withdrawn", "turn", "end"})
"""Kinds of journal records that count as progress."""


class What(StrEnum):
    """The kinds of ledger lines."""

    STARTED = "started"  # a process was started
    READY = "ready"  # the agent's code is loaded
    DECLARED = "declared"  # the code declares a step
    BEGIN = "begin"  # a step's body begins
    END = "end"  # a step's body returned or raised
    STORED = "stored"  # a commit returned from the store
    EFFECT = "effect"  # the code had a side effect
    TOUCH = "touch"  # the code opened something that it may write to
    SENT = "sent"  # a further part of a request that has an EFFECT line
    KEY = "key"  # a body called nl.key()
    DIVERGED = "diverged"  # a recorded step was called with other arguments
    RAISED = "raised"  # the agent's code raised
    UNUSED = "unused"  # the run ended without calling a recorded step
    MISFIT = "misfit"  # a value changed in the codec's round trip
    CHANGED = "changed"  # a body changed its arguments
    FAULT = "fault"  # a fault was injected
    STATE = "state"  # the run's state as the process exits
    USAGE = "usage"  # the process could not start the run


class LedgerLine(Struct, kw_only=True, omit_defaults=True):
    """One line. `location` is file:line in the user's code; `data` holds fields of one kind of line."""

    at: float
    life: int
    what: What
    kind: str = ""
    step: str = ""
    target: str = ""
    location: str = ""
    text: str = ""
    is_inside: bool = False
    """Whether it happened inside a step's body."""
    data: dict[str, Any] = {}

    @property
    def records(self) -> list[tuple[str, str]]:
        """The kinds and steps of the records that a commit stored."""
        return [(kind, step) for kind, step in self.data["records"]] if self.what is What.STORED else []

    @property
    def is_progress(self) -> bool:
        """Whether it stored an outcome."""
        return any(kind in OUTCOMES for kind, _ in self.records)

    @property
    def is_new(self) -> bool:
        """Whether it means new work: a body began, or an outcome was stored."""
        return self.what is What.BEGIN or self.is_progress


_DECODE = msgspec.json.Decoder(LedgerLine).decode


class Ledger:
    """The ledger of one writing process."""

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
        """Close the file."""
        os.close(self._fd)


class LedgerReader:
    """The ledger as the controlling process reads it."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.lines: list[LedgerLine] = []

    def read(self) -> list[LedgerLine]:
        """Return the lines added since the last call."""
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
