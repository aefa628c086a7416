"""Entries of the recovery log (see `recoverylog`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Happening(StrEnum):
    """What an entry of the recovery log says."""

    ENDED = "ended"  # a session ended while it had runs
    LEFT = "left"  # a run was left by it
    TAKEN = "taken"  # a run that was left was claimed
    RECOVERED = "recovered"  # it has made progress again, or has come to an end
    COMPLETED = "completed"  # a run that had been recovered has ended


class NewEntry(Struct, frozen=True, kw_only=True):
    """Something for the recovery log. `run` is empty when it is about a session alone; `body` is JSON."""

    kind: Happening
    run: str
    session: str
    body: bytes


class LogEntry(Struct, frozen=True):
    """An entry of the recovery log; `check` chains it to all entries before it (see `recoverylog`)."""

    seq: int
    kind: Happening
    run: str
    session: str
    at_ms: int
    body: bytes
    check: bytes
