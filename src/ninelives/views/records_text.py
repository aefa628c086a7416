"""Journal records as text: the lines of `show`, and `Run.history()`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ninelives.core.clock import moment
from ninelives.core.errors import BadName, Corrupt
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.output import read_output
from ninelives.core.journal.replay import StepBody, read_body
from ninelives.core.journal.salvage import read_salvaged
from ninelives.core.model.run import Kind, Record
from ninelives.core.secret import masked_json, masked_text
from ninelives.core.step_ids import step_text
from ninelives.core.values.exceptions import read_failure
from ninelives.views.escape import shortened

PREVIEW_CHARACTERS, _HISTORY_CHARACTERS = 120, 200


class RecordText(Struct, frozen=True, kw_only=True):
    """One record, for people.

    `verdict` says how a policy judged the call, `answered` how a model call was answered, if the record does.
    """

    seq: int
    at: datetime
    kind: str
    branch: str
    step: str
    number: int | None
    value: str
    step_kind: str | None
    took_ms: int | None
    epoch: int | None
    verdict: str = ""
    answered: str = ""


class Entry(Struct, frozen=True, kw_only=True):
    """One line of a run's history. `place` names the step as `Run.fork(at=)` accepts it: "refund[0]".

    `answered` says how a model call was answered, where it was hedged, cached or answered by an alternative.
    """

    seq: int
    at: datetime
    kind: str
    step: str
    branch: str
    number: int
    text: str
    place: str = ""
    answered: str = ""


class LogLine(Struct, frozen=True, kw_only=True):
    """One line that the run's code wrote with `nl.log`."""

    seq: int
    at: datetime
    level: str
    line: str


class Progress(Struct, frozen=True, kw_only=True):
    """The progress that the run's code reported last."""

    step: Any
    of: Any
    note: str

    def __str__(self) -> str:
        of = f" of {self.of}" if self.of is not None else ""
        return f"{self.step}{of}" + (f": {self.note}" if self.note else "")


class Failed(Struct, frozen=True, kw_only=True):
    """A recorded error; `step` is empty when it ended the run."""

    seq: int
    at: datetime
    step: str
    type: str
    message: str
    reason: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def lines(records: Iterable[Record]) -> list[RecordText]:
    """Return each record as text."""
    return [
        RecordText(
            seq=record.seq,
            at=moment(record.at_ms),
            kind=record.kind.value,
            branch=branch,
            step=step,
            number=number,
            value=preview(record),
            step_kind=record.step_kind,
            took_ms=record.took_ms,
            epoch=record.epoch,
            verdict=verdict_of(record),
            answered=answered_of(record),
        )
        for record in records
        for branch, step, number in (step_parts(record.step),)
    ]


def history(records: Iterable[Record]) -> list[Entry]:
    """Return each record as an entry of the run's history, with the start of its stored body."""
    return [
        Entry(
            seq=record.seq,
            at=moment(record.at_ms),
            kind=record.kind.value,
            step=step,
            branch=branch,
            number=number or 0,
            text=text if len(text) <= _HISTORY_CHARACTERS else f"{text[:_HISTORY_CHARACTERS]}…",
            place=step_text(record.step) if record.step else "",
            answered=answered_of(record),
        )
        for record in records
        for branch, step, number in (step_parts(record.step),)
        for text in (masked_json(record.body).decode(errors="replace"),)
    ]


def log_lines(records: Iterable[Record]) -> list[LogLine]:
    """Return the lines that the run's code logged."""
    found = []
    for record in records:
        if record.kind is Kind.LOG:
            said = _object(record.body)
            level, line = str(said.get("level", "")), str(said.get("line", ""))
            found.append(LogLine(seq=record.seq, at=moment(record.at_ms), level=level, line=line))
    return found


def progress_of(body: bytes) -> Progress:
    """Return the progress in the body of a PROGRESS record."""
    said = _object(body)
    return Progress(step=said.get("step"), of=said.get("of"), note=str(said.get("note") or ""))


def failure_of(record: Record) -> Failed | None:
    """Return the error in a record, if there is one."""
    body = body_of(record)
    if body is None or not isinstance(body.e, Raw):
        return None
    try:
        failure = read_failure(bytes(body.e))
    except Corrupt as error:
        name, message, reason = "Corrupt", error.what, ""
    else:
        name, message, reason = failure.name, failure.message, failure.reason.value
    step = step_text(record.step) if record.step else ""
    return Failed(
        seq=record.seq, at=moment(record.at_ms), step=step, type=name, message=message, reason=reason
    )


def last_failure(records: Sequence[Record]) -> Failed | None:
    """Return the last error among records."""
    errors = (failure_of(record) for record in reversed(records) if record.kind in (Kind.FAILURE, Kind.END))
    return next((failed for failed in errors if failed is not None), None)


def verdict_of(record: Record) -> str:
    """Return how a policy judged the call of a record, in words; empty if the record does not say it."""
    body = body_of(record) if record.step else None
    return str(body.j) if body is not None and body.j is not None else ""


def answered_of(record: Record) -> str:
    """Return how a model call was answered, in words; empty if that is not worth a word."""
    body = body_of(record) if b'"m":{' in record.body else None
    said = body.m.said(step_parts(record.step)[1]) if body is not None and body.m is not None else ""
    return masked_text(said)


def with_verdict(line: RecordText) -> str:
    """Return what a record says, with how a policy judged its call, and how a model answered it."""
    said = "; ".join(one for one in (line.verdict, line.answered) if one)
    return f"{line.value} ({said})".strip() if said else line.value


def step_parts(step: str) -> tuple[str, str, int | None]:
    """Return branch, name and count of a step."""
    try:
        return parse_step_id(step)
    except BadName:
        return "", step, None


def preview(record: Record, characters: int = PREVIEW_CHARACTERS) -> str:
    """Return in a few characters what a record says."""
    return shortened(_TEXTS.get(record.kind, _step)(record), characters)


def _step(record: Record) -> str:
    failed = failure_of(record)
    if failed is not None:
        return str(failed)
    body = body_of(record)
    if body is None:
        return _plain(record)
    if isinstance(body.v, Raw):
        return bytes(body.v).decode(errors="replace")
    return ", ".join(f"{name}={value}" for name, value in body.a.items())


def _intent(record: Record) -> str:
    """Return a start in words, or the pause between two attempts."""
    body = body_of(record)
    known = _object(bytes(body.v)) if body is not None and isinstance(body.v, Raw) else {}
    if not isinstance(known.get("due_ms"), int):
        return _step(record)
    due = moment(known["due_ms"])
    return f"attempt {known.get('attempts')} failed, the next is at {due:%H:%M:%S}Z: {known.get('error')}"


def _log_line(record: Record) -> str:
    said = _object(record.body)
    return f"{said.get('level')}: {said.get('line')}"


def _progress(record: Record) -> str:
    return str(progress_of(record.body))


def _beginning(record: Record) -> str:
    named = _object(record.body).get("p")
    return _arguments(named) if isinstance(named, dict) else _plain(record)


def _request(record: Record) -> str:
    said = _object(record.body)
    what = f"{said.get('kind')} {said.get('item')}"
    answer = said.get("answer")
    if not isinstance(answer, dict):
        void = f"; void: {_answer(said['void'])}" if isinstance(said.get("void"), dict) else ""
        return f"{what}{void}" if said.get("is_open") else f"{what} withdrawn"
    return _answer(said)


def _answer(said: dict[str, Any]) -> str:
    answer, what = said["answer"], f"{said.get('kind')} {said.get('item')}"
    value = f" {msgspec.json.encode(answer['value']).decode()}" if "value" in answer else ""
    note = f" ({answer['note']})" if answer.get("note") else ""
    by = f"by {said['by']}" if said.get("by") else "by default"
    return f"{answer.get('says')}{value} {by}{note}: {what}"


def _output(record: Record) -> str:
    try:
        body = read_output(record)
    except Corrupt:
        return _plain(record)
    if body.r:
        return "withdraws everything it emitted before"
    return ", ".join(bytes(value).decode(errors="replace") for value in body.v)


def _salvaged(record: Record) -> str:
    try:
        return str(read_salvaged(record))
    except Corrupt:
        return _plain(record)


def _plain(record: Record) -> str:
    return record.body.decode(errors="replace")


def _arguments(named: dict[str, Any]) -> str:
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in named.items())


def body_of(record: Record) -> StepBody | None:
    """Return the body of a step's record; None if it has none, or another kind of body."""
    try:
        return read_body(record) if record.body else None
    except Corrupt:
        return None


def readable(body: bytes) -> Any:
    """Return a body as a value: its decoded JSON, or {"base64": ...} if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {"base64": b64encode(body).decode()} if body else None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return found if isinstance(found, dict) else {}


_TEXTS: dict[Kind, Callable[[Record], str]] = {
    Kind.INTENT: _intent,
    Kind.LOG: _log_line,
    Kind.OUTPUT: _output,
    Kind.ASKED: _request,
    Kind.ANSWER: _request,
    Kind.SALVAGED: _salvaged,
    Kind.PROGRESS: _progress,
    Kind.CREATED: _beginning,
    Kind.TURN: _beginning,
}
