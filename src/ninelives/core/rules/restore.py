"""The rules for runs whose store is restored from a backup, which lacks what they did since.

Each unfinished run waits for a person: it is paused, its epoch grows, and each start of a non-resumable
action without an outcome goes into the inbox. Whether such an action happened cannot be derived from a
journal that is older than the outside world.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import MAY_ACT, STARTED_BY, ItemBody, item_id, write_item_body
from ninelives.core.journal.chain import Draft
from ninelives.core.journal.replay import step_name
from ninelives.core.journal.settlement import StartBody, read_start
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import Kind, Record, RunRow, StepKind
from ninelives.core.model.session import Evidence
from ninelives.core.values.blobs import digest

WHY = "the store was restored from a backup: what happened after the backup is not recorded"
RESTORED = Evidence(note="the store was restored from a backup")
"""Stored with the sessions that the backup shows as alive: they may still run, on another machine."""
_REMEDY = (
    "Check where its effect would show. If it happened, answer so, with its result; if it did not, it "
    "is started again; or let it fail. Then resume the run"
)
_SETTLES = (Kind.RESULT, Kind.FAILURE, Kind.VOIDED, Kind.WITHDRAWN)


class Doubt(Struct, frozen=True):
    """A start that a person must settle: its new record, the inbox item, and its business key, if any."""

    draft: Draft
    item: NewItem
    key: str


def fenced(run: RunRow, now_ms: int) -> RunRow:
    """Return the row of an unfinished run, paused and fenced: no earlier owner can write to it."""
    # The epoch fences workers of the original store: they may still live, and reach this one under its old
    # name.
    return replace(run, epoch=run.epoch + 1, paused=True, news=run.news + 1, changed_ms=now_ms)


def doubts_in(run: RunRow, records: Iterable[Record], now_ms: int, *, why: str = WHY) -> list[Doubt]:
    """Return the doubts of a run, from the verified records of its turn, with their bodies."""
    found: dict[str, tuple[StartBody, StepKind | None]] = {}
    for record in records:
        if record.kind in _SETTLES:
            found.pop(record.step, None)
        elif record.kind in (Kind.INTENT, Kind.DOUBT):
            start = _start_in(record)
            if start is not None and start.w:  # only non-resumable actions record which session started them
                found[record.step] = start, record.step_kind
    return [
        _doubt(run, step, start, kind, now_ms, why) for step, (start, kind) in found.items() if not start.i
    ]


def _start_in(record: Record) -> StartBody | None:
    """Return the body of a start; None if no engine wrote it (the chain has proved it undamaged)."""
    try:
        return read_start(record)
    except Corrupt:
        return None


def _shown(preview: str) -> msgspec.Raw:
    """Return the preview of an argument as JSON; one that was cut short as a JSON string."""
    try:
        msgspec.json.decode(preview)
    except msgspec.DecodeError:
        return msgspec.Raw(msgspec.json.encode(preview))
    return msgspec.Raw(preview.encode())


def _doubt(run: RunRow, step: str, start: StartBody, kind: StepKind | None, now_ms: int, why: str) -> Doubt:
    arguments = {name: _shown(text) for name, text in start.a.items()}
    evidence = {
        STARTED_BY: start.w,
        "start": str(start.n + 1),
        "why": why,
        MAY_ACT: "yes, as far as is known",
    }
    body = write_item_body(
        ItemBody(
            what=f"Did {step_name(step)} happen? {why}",
            remedy=_REMEDY,
            arguments=arguments,
            key=start.k,
            evidence=evidence,
            happened=start.lost,
        )
    )
    opened = item_id(run.id, run.turn, step, start.n, now_ms, "restored")
    item = NewItem(id=opened, kind=ItemKind.DOUBT, step=step, digest=digest(body)[:16], body=body)
    # A new item asks: the person that gave up (`g`) has answered an earlier one.
    known = replace(start, t=start.t or now_ms, why=why, i=opened, g="")
    return Doubt((Kind.DOUBT, step, now_ms, msgspec.json.encode(known), (), kind, None), item, start.k)
