"""What a run looks like to people: its history and its checkpoint, read from the journal."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from ninelives.core.errors import BadName
from ninelives.core.keys import parse_step_id, step_text
from ninelives.core.model import Journal, Kind, Record, State
from ninelives.core.replay import Replay


class Entry(Struct, frozen=True, kw_only=True):
    """One line of a run's history."""

    seq: int
    at: datetime
    kind: str
    step: str
    branch: str
    number: int
    text: str


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Where a run is: what is durable of it now, in words."""

    run: str
    agent: str
    status: State
    turn: int
    steps: int
    progress: str
    pending: tuple[str, ...]
    waits: str
    session: str | None
    at: datetime
    last_error: str


def history(records: tuple[Record, ...]) -> list[Entry]:
    """Return the history of a run."""
    return [_entry(record) for record in records]


def checkpoint(journal: Journal) -> Checkpoint:
    """Return where a run is."""
    run, replay = journal.run, Replay(journal.records)
    failures = [record for record in journal.records if record.kind is Kind.FAILURE]
    ended = [record for record in journal.records if record.kind is Kind.END and b'"e":' in record.body]
    steps = sum(record.kind in (Kind.RESULT, Kind.FAILURE) for record in journal.records)
    said = [record for record in journal.records if record.kind is Kind.PROGRESS]
    return Checkpoint(
        run=run.id,
        agent=run.agent,
        status=run.state,
        turn=run.turn,
        steps=steps,
        progress=_progress(said[-1]) if said else "",
        pending=tuple(step_text(step) for step in replay.intents),
        waits=run.waits,
        session=run.session,
        at=_moment(run.changed_ms),
        last_error=_text((ended or failures)[-1]) if ended or failures else "",
    )


def _entry(record: Record) -> Entry:
    try:
        branch, name, number = parse_step_id(record.step)
    except BadName:
        branch, name, number = "", record.step, 0
    return Entry(
        seq=record.seq,
        at=_moment(record.at_ms),
        kind=record.kind.value,
        step=name,
        branch=branch,
        number=number,
        text=_text(record),
    )


def _progress(record: Record) -> str:
    said = msgspec.json.decode(record.body)
    of = f" of {said['of']}" if said.get("of") is not None else ""
    return f"step {said['step']}{of}" + (f": {said['note']}" if said.get("note") else "")


def _text(record: Record) -> str:
    text = record.body.decode(errors="replace")
    return text if len(text) <= 200 else f"{text[:200]}…"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
