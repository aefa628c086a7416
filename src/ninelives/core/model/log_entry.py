"""Entries of the recovery log (see `core.journal.recovery_log`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Happening(StrEnum):
    """What an entry of the recovery log reports."""

    ENDED = "ended"  # a session ended while it had runs
    LEFT = "left"  # that session's end left a run without an owner
    TAKEN = "taken"  # a worker claimed such a run
    RECOVERED = "recovered"  # the run has made progress again, or has ended
    COMPLETED = "completed"  # a recovered run has ended


class NewEntry(Struct, frozen=True, kw_only=True):
    """A new entry for the recovery log. `run` is empty if it concerns only a session; `body` is JSON."""

    kind: Happening
    run: str
    session: str
    body: bytes


class LogEntry(Struct, frozen=True):
    """An entry of the recovery log; `check` chains it to all entries before it."""

    seq: int
    kind: Happening
    run: str
    session: str
    at_ms: int
    body: bytes
    check: bytes
