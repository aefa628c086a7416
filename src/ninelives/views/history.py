"""The history of a run for people, read from its journal."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ninelives.core.errors import BadName
from ninelives.core.ids import parse_step_id
from ninelives.core.model.run import Record
from ninelives.core.step_ids import step_text
from ninelives.views.records_text import moment


class Entry(Struct, frozen=True, kw_only=True):
    """One line of a run's history. `place` names the step as `Run.fork(at=)` accepts it: "refund[0]"."""

    seq: int
    at: datetime
    kind: str
    step: str
    branch: str
    number: int
    text: str
    place: str = ""


def history(records: tuple[Record, ...]) -> list[Entry]:
    """Return the history of a run."""
    return [_entry(record) for record in records]


def _entry(record: Record) -> Entry:
    try:
        branch, name, number = parse_step_id(record.step)
    except BadName:
        branch, name, number = "", record.step, 0
    return Entry(
        seq=record.seq,
        at=moment(record.at_ms),
        kind=record.kind.value,
        step=name,
        branch=branch,
        number=number,
        text=_text(record),
        place=step_text(record.step) if record.step else "",
    )


def _text(record: Record) -> str:
    text = record.body.decode(errors="replace")
    return text if len(text) <= 200 else f"{text[:200]}…"
