"""The verdicts that a run's records carry: how a policy judged each call.

Records are read as far as this needs: a record of another version has no verdict.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ninelives.core.model.run import Kind, Record

ALLOWED, REWRITTEN, ASKED, DENIED = "a", "r", "q", "d"
_JUDGED = b'"j":'
_STEPS = (Kind.INTENT, Kind.RESULT, Kind.FAILURE, Kind.DOUBT, Kind.WITHDRAWN)


class RecordedVerdict(Struct, frozen=True):
    """The verdict in a step's first record: its letter, the policy's digest, the rules and the reason."""

    v: str = ""
    p: str = ""
    r: tuple[str, ...] = ()
    why: str = ""


class _VerdictOnly(Struct, frozen=True):
    """What is needed of a step's record: its verdict, and the session that made a start."""

    j: RecordedVerdict | None = None
    w: str = ""


def verdict_of(record: Record) -> RecordedVerdict | None:
    """Return the verdict that a record carries; None if it carries none."""
    return _body_of(record).j if record.kind in _STEPS and _JUDGED in record.body else None


def is_start(record: Record) -> bool:
    """Return whether a record is the intent of what must not be done twice."""
    return record.kind is Kind.INTENT and b'"w":' in record.body and bool(_body_of(record).w)


def _body_of(record: Record) -> _VerdictOnly:
    try:
        return msgspec.json.decode(record.body, type=_VerdictOnly)
    except msgspec.DecodeError:
        return _VerdictOnly()
