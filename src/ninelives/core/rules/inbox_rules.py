"""The rules for signals and inbox items, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ninelives.core.errors import BadRecord, IdConflict, StaleAnswer
from ninelives.core.journal.answers import item_id
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.inbox import Item, ItemKind, ItemState, NewItem, Signal
from ninelives.core.model.run import Kind, RunRow


def taken_in(commit: Commit) -> list[tuple[int, int]]:
    """Return pairs of a signal and the record that takes it: the n-th take has the n-th SIGNAL record."""
    records = (record.seq for record in commit.records if record.kind is Kind.SIGNAL)
    return list(zip(commit.takes, records, strict=False))


def opened(known: Item | None, new: NewItem, run: str, now_ms: int) -> Item | Verdict:
    """Open an item: return it, or the known one with the same content, or the verdict that refuses it."""
    item = Item(
        id=new.id,
        run=run,
        kind=new.kind,
        step=new.step,
        digest=new.digest,
        body=new.body,
        to=new.to,
        deadline_ms=new.deadline_ms,
        # Kept, so that a repeated request compares equal to the item that it made before.
        opened_ms=known.opened_ms if known else now_ms,
    )
    if known is None:
        return item
    if replace(known, state=ItemState.OPEN, answer=b"", by="", answered_ms=None) == item:
        return known
    fault = BadRecord(f"the item {new.id!r} exists with other content", run=run)
    return Verdict(run, Outcome.REFUSED, fault)


def answered(known: Item | None, item: str, digest: bytes, body: bytes, by: str, now_ms: int) -> Item:
    """Answer an open item; repeating the same person's same answer changes nothing.

    Raises StaleAnswer when the item is unknown, closed, answered otherwise, or not the one that was shown.
    """
    if known is None:
        raise StaleAnswer(f"there is no inbox item {item!r}", remedy="List the inbox again")
    # The person answered what was shown: an item that changed since must not get that answer.
    if known.digest != digest:
        raise StaleAnswer(
            f"item {item!r} has changed since it was shown",
            run=known.run,
            step=known.step,
            remedy="Read it again and answer what it asks now",
        )
    if known.state is ItemState.OPEN:
        return replace(known, state=ItemState.ANSWERED, answer=body, by=by, answered_ms=now_ms)
    if known.state is ItemState.ANSWERED and (known.answer, known.by) == (body, by):
        return known
    raise StaleAnswer(
        f"item {item!r} is {known.state}" + (f" by {known.by}" if known.by else ""),
        run=known.run,
        step=known.step,
        remedy="Each item takes one answer; list the inbox again",
    )


def same_signal(known: Signal, name: str, body: bytes) -> Signal:
    """Return the signal whose id the run has seen. Raises IdConflict if its name or body differ."""
    if (known.name, known.body) == (name, body):
        return known
    raise IdConflict(
        f"signal {known.id!r} was sent with another name or value",
        run=known.run,
        remedy="Use another id for another signal",
    )


# What stopped a run ------------------------------------------------------------------------------

STOPPING = frozenset(
    {
        ItemKind.DIVERGENCE,
        ItemKind.DAMAGE,
        ItemKind.BUDGET,
        ItemKind.QUARANTINE,
        ItemKind.RESOURCE,
        ItemKind.POLICY,
    }
)
"""The kinds of items that stop a whole run until a person answers."""


def stop_id(run: str, length: int, kind: ItemKind, body: bytes) -> str:
    """Return the id of the item that stops a run at that length of its journal."""
    return item_id(run, length, kind, body.decode())


def stop_answered(run: RunRow, items: Iterable[Item]) -> Item | None:
    """Return the item that stopped the run, if a person has answered it and the answer was not taken yet."""
    given = (item for item in items if item.state is ItemState.ANSWERED and item.kind in STOPPING)
    return next(
        (item for item in given if item.id == stop_id(run.id, run.length, item.kind, item.body)), None
    )
