"""The totals in a run's row, so that listing runs reads no journals.

The owner of a run knows the totals and writes all of them with each commit that changes one, without reading.
`Facts` is what a step knows of a record besides its content; part of it goes into the record, part into the
totals.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.model.run import Kind, Record, RunRow, StepKind
from ninelives.core.secret import masked_text

OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL})
_ERROR_CHARACTERS = 200


class Retrying(Struct, frozen=True):
    """A step that is being retried: the failed attempt, of how many, when the next is due, and why.

    `reason` is the class of the error (`core.values.retry.Reason`); rows of before lack it.
    """

    step: str
    attempt: int
    of: int
    due_ms: int
    error: str
    reason: str = ""


class Facts(Struct, frozen=True):
    """What is known of a record besides its content."""

    kind: StepKind | None = None
    took_ms: int | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    error: str = ""
    retrying: Retrying | None = None


NO_FACTS = Facts()
BUILTIN = Facts(StepKind.BUILTIN)


class Tally(Struct, frozen=True):
    """The totals of a run: see `RunRow`. `progress` and `retrying` are JSON, or empty."""

    steps: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    progress: str = ""
    last_error: str = ""
    retrying: str = ""


_ENCODE = msgspec.json.Encoder().encode
_RETRYING = msgspec.json.Decoder(Retrying).decode


def tally_of(run: RunRow) -> Tally:
    """Return the totals in a run's row."""
    return Tally(run.steps, run.tokens_in, run.tokens_out, run.progress, run.last_error, run.retrying)


def with_tally(run: RunRow, tally: Tally) -> RunRow:
    """Return the row with these totals."""
    return replace(
        run,
        steps=tally.steps,
        tokens_in=tally.tokens_in,
        tokens_out=tally.tokens_out,
        progress=tally.progress,
        last_error=tally.last_error,
        retrying=tally.retrying,
    )


def added(tally: Tally, kind: Kind, step: str, body: bytes, facts: Facts) -> Tally:
    """Return the totals after one more record."""
    if kind in OUTCOMES:
        known = read_retrying(tally.retrying) if tally.retrying else None
        retrying = "" if known is not None and known.step == step else tally.retrying
        return Tally(
            tally.steps + 1,
            tally.tokens_in + facts.tokens_in,
            tally.tokens_out + facts.tokens_out,
            tally.progress,
            facts.error or tally.last_error,
            retrying,
        )
    if kind is Kind.PROGRESS:
        return replace(tally, progress=body.decode())
    if facts.retrying is not None:
        error = facts.retrying.error
        return replace(tally, last_error=error, retrying=_ENCODE(facts.retrying).decode())
    if kind is Kind.END or facts.error:
        return replace(tally, last_error=facts.error or tally.last_error, retrying="")
    return tally


def summed(records: Iterable[Record]) -> Tally:
    """Return the totals of records without facts: a fork's prefix, or records of schema 1."""
    tally = Tally()
    for record in records:
        if record.kind is not Kind.PROGRESS or record.body:
            tally = added(tally, record.kind, record.step, record.body, NO_FACTS)
    return tally


def read_retrying(text: str) -> Retrying | None:
    """Return the retry that a row reports; None when it reports none."""
    try:
        return _RETRYING(text) if text else None
    except msgspec.DecodeError:
        return None


def error_text(error: BaseException) -> str:
    """Return an error as short text that every store can keep."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    said = masked_text(said)
    return said[:_ERROR_CHARACTERS].encode(errors="replace").decode().replace("\0", "?")
