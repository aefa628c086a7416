"""A run's checkpoint: what is durable of it now, from its row and the records of its turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Struct

from ninelives.core.clock import moment
from ninelives.core.journal.resources import open_in
from ninelives.core.journal.salvage import read_salvaged
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.run import Journal, Kind, Record, RunRow, State
from ninelives.core.rules import deaths
from ninelives.core.step_ids import step_text
from ninelives.views.records_text import body_of, last_failure, progress_of

_SETTLES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.VOIDED})


class Operation(Struct, frozen=True, kw_only=True):
    """A step without an outcome that was started, or is in doubt."""

    seq: int
    at: datetime
    step: str
    arguments: dict[str, str]


class Resource(Struct, frozen=True, kw_only=True):
    """A resource that the run holds open, and the evidence of its condition at the last check."""

    what: str
    step: str
    evidence: dict[str, str]


class EffectState(StrEnum):
    """What is known of a non-resumable action."""

    STARTED = "started"
    IN_DOUBT = "in doubt"
    NOT_DONE = "not done"
    DONE = "done"
    FAILED = "failed"


class StartedAction(Struct, frozen=True, kw_only=True):
    """A non-resumable action of the current turn: its number of starts, and the state of the last one."""

    step: str
    state: EffectState
    starts: int
    key: str
    session: str
    at: datetime


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The position of a run, and what it waits for."""

    run: str
    agent: str
    status: State
    paused: bool
    turn: int
    steps: int
    progress: str
    resources: tuple[Resource, ...]
    pending: tuple[Operation, ...]
    effects: tuple[StartedAction, ...]
    in_doubt: tuple[Operation, ...]
    waits: str
    next_wake_up: datetime | None
    last_error: str
    salvaged: str
    last_recovery: str
    session: str | None
    at: datetime


def checkpoint(journal: Journal, last_recovery: str = "") -> Checkpoint:
    """Return the checkpoint of a run; `last_recovery` goes into it. Raises Corrupt."""
    run, records = journal.run, journal.records
    return Checkpoint(
        run=run.id,
        agent=run.agent,
        status=run.state,
        paused=run.paused,
        turn=run.turn,
        steps=steps_in(records),
        progress=_progress(records),
        resources=tuple(resources_in(records)),
        pending=tuple(operations_in(records, Kind.INTENT)),
        effects=tuple(effects_in(records)),
        in_doubt=tuple(operations_in(records, Kind.DOUBT)),
        waits=run.waits or deaths.waits_solo(run),
        next_wake_up=wake_up_of(run),
        last_error=_last_error(records),
        salvaged=salvaged_in(records),
        last_recovery=last_recovery,
        session=run.session,
        at=moment(run.changed_ms),
    )


def steps_in(records: Sequence[Record]) -> int:
    """Count the steps that have an outcome."""
    return sum(record.kind in (Kind.RESULT, Kind.FAILURE) for record in records)


def operations_in(records: Sequence[Record], kind: Kind) -> list[Operation]:
    """Return the steps without an outcome that were started (INTENT), or are in doubt (DOUBT)."""
    found: dict[str, Record] = {}
    for record in records:
        if record.kind is kind:
            found[record.step] = record
        elif record.kind in _SETTLES:
            found.pop(record.step, None)
    return [
        Operation(
            seq=record.seq,
            at=moment(record.at_ms),
            step=step_text(step),
            arguments=dict(body.a) if (body := body_of(record)) is not None else {},
        )
        for step, record in found.items()
    ]


def resources_in(records: Sequence[Record]) -> list[Resource]:
    """Return the resources that the run holds open. Raises Corrupt."""
    return [
        Resource(what=str(holding.target), step=step_text(step), evidence=dict(holding.evidence))
        for step, holding in open_in(records).items()
    ]


def effects_in(records: Sequence[Record]) -> list[StartedAction]:
    """Return the non-resumable actions, each with its state. Raises Corrupt."""
    found: dict[str, StartedAction] = {}
    for record in records:
        known = found.get(record.step)
        if record.kind is Kind.INTENT:
            start = read_start(record)
            if start.w:  # only non-resumable actions record which session started them
                found[record.step] = StartedAction(
                    step=step_text(record.step),
                    state=EffectState.STARTED,
                    starts=start.n + 1,
                    key=start.k,
                    session=start.w,
                    at=moment(record.at_ms),
                )
        elif known is not None and (state := _STATES.get(record.kind)) is not None:
            found[record.step] = msgspec.structs.replace(known, state=state, at=moment(record.at_ms))
    return list(found.values())


_STATES = {
    Kind.DOUBT: EffectState.IN_DOUBT,
    Kind.VOIDED: EffectState.NOT_DONE,
    Kind.RESULT: EffectState.DONE,
    Kind.FAILURE: EffectState.FAILED,
}


def salvaged_in(records: Sequence[Record]) -> str:
    """Return what the last salvage gave up, in words; empty if there was none. Raises Corrupt."""
    said = [record for record in records if record.kind is Kind.SALVAGED]
    return str(read_salvaged(said[-1])) if said else ""


def wake_up_of(run: RunRow) -> datetime | None:
    """Return when a parked run falls due; None if only news can wake it, or if it is not parked."""
    if run.due_ms is None or run.state not in (State.PENDING, State.CHECKPOINTED):
        return None
    return moment(run.due_ms or run.created_ms)


def _progress(records: Sequence[Record]) -> str:
    said = [record for record in records if record.kind is Kind.PROGRESS]
    return f"step {progress_of(said[-1].body)}" if said else ""


def _last_error(records: Sequence[Record]) -> str:
    failed = last_failure(records)
    if failed is None:
        return ""
    return f"{failed.type}: {failed.message}" + (f" (in step {failed.step})" if failed.step else "")
