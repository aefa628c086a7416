"""Which steps a retried run does again: those whose outcomes its code did not survive.

A failed run that is retried keeps its whole journal; one more record says which outcomes no longer count.
Those are the failure (or fired time limit) that ended the run, failures after which nothing was recorded on
their branch or on a branch that it came from, and steps that were cancelled after one of these: if it does
not happen again, nothing cancels them. A failure that the code caught and survived stays on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Struct

from ninelives.core.errors import BadName
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.replay import CARRIED, TIMEOUT, Replay, read_body, step_name
from ninelives.core.model.run import Kind, Record

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL, Kind.ANSWER})


class _ErrorText(Struct, frozen=True):
    """The parts of a recorded error that identify it."""

    name: str
    message: str
    attributes: str = "{}"


class _Attributes(Struct, frozen=True):
    """The attributes of one of our own errors: the step that raised it."""

    step: str | None = None


def fatal_steps(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the steps of a failed run whose outcomes its code did not survive, in their order.

    Only what still counts: of what an earlier retry dropped, the step may have succeeded since.
    """
    replay = Replay(records)
    fatal: list[str] = []
    first = records[-1].seq if records else 0  # the number of the first failure among them
    survived: set[str] = set()  # branches with a later record
    last = records[-1] if records and records[-1].kind is Kind.END else None
    ended_with, timed_out = (_error(last), _timed_out(last)) if last is not None else (None, None)
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
        is_the_end |= record.kind is Kind.RESULT and record.step == timed_out
        is_fatal = is_the_end or (may_be_fatal and not any(one in survived for one in _lineage(branch)))
        if is_fatal and replay.is_current(record):
            fatal.append(record.step)
            if record.kind is not Kind.WITHDRAWN:
                first = record.seq
        # A withdrawn step shows that its branch was cancelled, not that its code went on.
        if record.kind is not Kind.WITHDRAWN:
            survived.add(branch)
    cancelled = [
        one.step
        for one in records
        if one.kind is Kind.WITHDRAWN and one.seq > first and _is_step(one.step) and replay.is_current(one)
    ]
    return tuple(dict.fromkeys([*reversed(fatal), *cancelled]))


def _error(record: Record) -> tuple[str, str] | None:
    """Return the name and the message of the error in a record."""
    error = read_body(record).e
    if error is UNSET:
        return None
    failure = msgspec.json.decode(error, type=_ErrorText)
    return failure.name, failure.message


def _timed_out(end: Record) -> str | None:
    """Return the time limit (`nl.timeout`) that ended a run."""
    error = read_body(end).e
    if error is UNSET:
        return None
    failure = msgspec.json.decode(error, type=_ErrorText)
    if failure.name != "TimedOut":
        return None
    step = msgspec.json.decode(failure.attributes, type=_Attributes).step
    return step if step is not None and step_name(step) == TIMEOUT else None


def _is_step(step: str) -> bool:
    """Return whether a withdrawn step is a call of the code: not a limit left in time, nor carried over."""
    return step_name(step) != TIMEOUT and not step.startswith(CARRIED)


def _lineage(branch: str) -> Iterable[str]:
    """Return a branch and its ancestors."""
    yield branch
    while branch:
        branch = branch.rpartition("/")[0]
        yield branch
