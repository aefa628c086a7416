"""What becomes of a run whose store is put back from a backup: what it did since is not recorded any more.

So it waits for a person: it is paused, its epoch grows, and each start of a non-resumable action that has
no outcome goes into the inbox. Whether such an action happened cannot be told from a journal that is older
than the world.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import MAY_ACT, STARTED_BY, Asked, item_id, write_asked
from ninelives.core.journal.chain import Draft
from ninelives.core.journal.replay import step_name
from ninelives.core.journal.settlement import StartBody, read_start
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import Kind, Record, RunRow, StepKind
from ninelives.core.model.session import Evidence
from ninelives.core.values.blobs import digest

WHY = "the store was restored from a backup: what happened after the backup is not recorded"
RESTORED = Evidence(note="the store was restored from a backup")
"""Kept with the sessions that a backup says are alive: perhaps they are, on another machine."""
_REMEDY = (
    "Look where it would show. If it happened, say so, with its result; if it did not, it is "
    "started again; or let it fail. Then resume the run"
)
_SETTLES = (Kind.RESULT, Kind.FAILURE, Kind.VOIDED, Kind.WITHDRAWN)


class Doubt(Struct, frozen=True):
    """A start that is put before a person: its record, the question, and its business key, if it has one."""

    draft: Draft
    item: NewItem
    key: str


def fenced(run: RunRow, now_ms: int) -> RunRow:
    """Return an unfinished run as it waits for a person; nobody who owned it before can write to it."""
    return replace(run, epoch=run.epoch + 1, paused=True, news=run.news + 1, changed_ms=now_ms)


def doubts_in(run: RunRow, records: Iterable[Record], now_ms: int) -> list[Doubt]:
    """Return what is to be asked about a run, from the verified records of its turn, with their bodies."""
    found: dict[str, tuple[StartBody, StepKind | None]] = {}
    for record in records:
        if record.kind in _SETTLES:
            found.pop(record.step, None)
        elif record.kind in (Kind.INTENT, Kind.DOUBT):
            start = _start_in(record)
            if start is not None and start.w:  # a non-resumable action: only these say who began them
                found[record.step] = start, record.step_kind
    return [_doubt(run, step, start, kind, now_ms) for step, (start, kind) in found.items() if not start.i]


def _start_in(record: Record) -> StartBody | None:
    """Return the body of a start; None for what no engine wrote: the chain says that it is not damaged."""
    try:
        return read_start(record)
    except Corrupt:
        return None


def _shown(preview: str) -> msgspec.Raw:
    """Return a preview of an argument as the JSON that it is; one that was cut short as a text."""
    try:
        msgspec.json.decode(preview)
    except msgspec.DecodeError:
        return msgspec.Raw(msgspec.json.encode(preview))
    return msgspec.Raw(preview.encode())


def _doubt(run: RunRow, step: str, start: StartBody, kind: StepKind | None, now_ms: int) -> Doubt:
    arguments = {name: _shown(text) for name, text in start.a.items()}
    evidence = {
        STARTED_BY: start.w,
        "start": str(start.n + 1),
        "why": WHY,
        MAY_ACT: "yes, as far as is known",
    }
    body = write_asked(
        Asked(
            what=f"Did {step_name(step)} happen? {WHY}",
            remedy=_REMEDY,
            arguments=arguments,
            key=start.k,
            evidence=evidence,
            happened=start.lost,
        )
    )
    asked = item_id(run.id, run.turn, step, start.n, now_ms, "restored")
    item = NewItem(id=asked, kind=ItemKind.DOUBT, step=step, digest=digest(body)[:16], body=body)
    known = replace(start, t=start.t or now_ms, why=WHY, i=asked, g="")
    return Doubt((Kind.DOUBT, step, now_ms, msgspec.json.encode(known), (), kind, None), item, start.k)
