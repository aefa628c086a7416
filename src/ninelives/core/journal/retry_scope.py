"""Which steps a retried run does again: those whose outcomes its code did not survive.

A failed run that is retried keeps its whole journal; one more record says which outcomes no longer count.
Those are the failure that ended the run, and failures (fired timeouts, cancellations) after which nothing
was recorded on their branch or on a branch that it came from. A failure that the code caught and survived
stays on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Struct

from ninelives.core.errors import BadName
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind, Record

TIMEOUT = "timeout"
"""The built-in step of `nl.timeout`. RESULT: time ran out; WITHDRAWN: its block ended in time."""

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL, Kind.ANSWER})


class _ErrorText(Struct, frozen=True):
    """The parts of a recorded error that identify it."""

    name: str
    message: str


def fatal_steps(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the steps of a failed run whose outcomes its code did not survive, in their order."""
    fatal: list[str] = []
    survived: set[str] = set()  # branches with a later record
    ended_with = _error(records[-1]) if records and records[-1].kind is Kind.END else None
    for record in reversed(records):
        if record.kind not in _OUTCOMES:
            continue
        try:
            branch, name, _ = parse_step_id(record.step)
        except BadName:
            continue
        if name == TIMEOUT and record.kind is Kind.WITHDRAWN:
            continue  # the block ended in time: no evidence of what the code survived
        may_be_fatal = record.kind in (Kind.FAILURE, Kind.WITHDRAWN) or name == TIMEOUT
        # By name and message: the failure that ended the run
        # may have been followed by clean-up on its branch.
        is_the_end = record.kind is Kind.FAILURE and _error(record) == ended_with
        if is_the_end or (may_be_fatal and not any(one in survived for one in _lineage(branch))):
            fatal.append(record.step)
        # A withdrawn step shows that its branch was cancelled, not that its code went on.
        if record.kind is not Kind.WITHDRAWN:
            survived.add(branch)
    return tuple(dict.fromkeys(reversed(fatal)))


def _error(record: Record) -> tuple[str, str] | None:
    """Return the name and the message of the error in a record."""
    error = read_body(record).e
    if error is UNSET:
        return None
    failure = msgspec.json.decode(error, type=_ErrorText)
    return failure.name, failure.message


def _lineage(branch: str) -> Iterable[str]:
    """Return a branch and its ancestors."""
    yield branch
    while branch:
        branch = branch.rpartition("/")[0]
        yield branch
