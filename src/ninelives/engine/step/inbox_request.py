"""Ask a person from inside a run: open an inbox item once, wait durably, take its answer once.

A request at a step's position has a digest; its item's id is made of the position and a counter. As long as
the request is the same, every replay finds the same item. When the request at that position changes (other
arguments, an answer that did not fit), the old item is void: closed if it was open, left unchanged if it was
answered, and a new one is opened under the next count.

If we die before an item is open, the next worker opens it; after that, it finds the item, answered or not;
between the answer and the record that takes it, it finds the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.journal.answers import ItemBody, Says, item_id, read_taken, write_asking, write_item_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.inbox import Item, ItemKind, ItemState, NewItem
from ninelives.core.model.run import Kind, News
from ninelives.engine.commit.ticket import Extras
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import ready, refresh, wait


class InboxRequest(Struct, frozen=True, kw_only=True):
    """What a person is asked at one step of a run. `seconds` is how long we wait for the answer.

    `part` distinguishes several requests that one step makes: each has its own items.
    """

    step: str
    part: str = ""
    kind: ItemKind
    body: ItemBody
    digest: bytes
    to: str = ""
    seconds: float | None = None


Misfit = Callable[[Item], str | None]
"""Returns what is wrong with an answered item, so that it is asked again; None if its answer stands."""


class Late(Struct, frozen=True):
    """No answer came in time; `item` is still open."""

    item: str


async def ask(execution: Execution, request: InboxRequest, misfit: Misfit) -> Item | Late:
    """Return the answered item, or Late. When cancelled, close the item."""
    item, due_ms = await _opened(execution, request, misfit)
    try:
        while True:
            found = await _answered(execution, request, item, due_ms)
            if isinstance(found, Late) or misfit(found) is None:
                return found
            item, due_ms = await _opened(execution, request, misfit)
    except asyncio.CancelledError:
        _close(execution, request, item)
        raise


async def _answered(execution: Execution, request: InboxRequest, id: str, due_ms: int | None) -> Item | Late:
    def check(news: News) -> Item | Late | None:
        for item in news.items:
            if item.id == id and item.state is ItemState.ANSWERED:
                return item
        return Late(id) if due_ms is not None and news.now_ms >= due_ms else None

    # The run parks and does not escalate: nothing is wrong with it, and callers still await its result.
    return await wait(execution, f"for {request.to or 'a person'}: {request.body.what}", check, due_ms=due_ms)


def taken(execution: Execution, step: str) -> dict[str, Says]:
    """Return the answers that this turn's records have taken at a step, by item."""
    found = (read_taken(record) for record in execution.replay.answers if record.step == step)
    return {one.item: one.answer.says for one in found}


def _close(execution: Execution, request: InboxRequest, item: str) -> None:
    """Close an item that no code waits for any more; not if the execution is sealed: the run only parks."""
    if execution.sealed is None:
        # CRASH: closed, and not recorded as withdrawn: the next worker opens another.
        withdrawn = (Kind.ASKED, request.step, write_asking(item, request.kind, is_open=False))
        # Not awaited: the caller is being cancelled. If an answer
        # wins, the commit is stale and the item stays answered.
        execution.write([withdrawn], Extras(closes=(item,)))


async def _opened(execution: Execution, request: InboxRequest, misfit: Misfit) -> tuple[str, int | None]:
    """Find the item for this request, or open one; return its id and its deadline."""
    # Before the inbox is read: a recorded outcome may still make this request unnecessary.
    await ready(execution)
    while True:
        count, current = _current(execution, request)
        why = _why_void(current, request, misfit) if current is not None else None
        if current is not None and why is None:
            return current.id, current.deadline_ms
        due_ms = None
        if request.seconds is not None:
            due_ms = execution.store.now_ms() + int(request.seconds * 1000)
        new = _new(execution, request, count, due_ms, why)
        is_open = current is not None and current.state is ItemState.OPEN
        closes = (current.id,) if current is not None and is_open else ()
        # CRASH: not open; the next worker opens it.
        void = _void(execution, current)
        opens = (Kind.ASKED, request.step, write_asking(new.id, request.kind, is_open=True, void=void))
        written = execution.write([opens], Extras(opens=(new,), closes=closes))
        try:
            verdict = await execution.durable(written)
        except asyncio.CancelledError:
            _close(execution, request, new.id)
            raise
        if verdict.outcome is Outcome.COMMITTED:
            return new.id, due_ms
        await refresh(execution)  # the item to close was answered at this moment: void all the same


def _void(execution: Execution, item: Item | None) -> Item | None:
    """Return the item if its answer is void and no record has taken it yet."""
    if item is None or item.state is not ItemState.ANSWERED or item.id in taken(execution, item.step):
        return None
    return item


def _current(execution: Execution, request: InboxRequest) -> tuple[int, Item | None]:
    """Return how many items were opened at this position, and the last of them."""
    items = {item.id: item for item in execution.news().items if item.kind is request.kind}
    count, current = 0, None
    # By count, not by the newest: every replay finds the same items in the same order.
    while (found := items.get(_id(execution, request, count))) is not None:
        count, current = count + 1, found
    return count, current


def _why_void(item: Item, request: InboxRequest, misfit: Misfit) -> str | None:
    """Return why an item does not serve this request; None if it does."""
    if item.digest != request.digest:
        what = "its arguments, its key or the policy" if request.kind is ItemKind.APPROVAL else "what it asks"
        return f"{what} changed since it was asked before"
    if item.state is ItemState.CLOSED:
        return "it was withdrawn"
    return misfit(item) if item.state is ItemState.ANSWERED else None


def _new(
    execution: Execution, request: InboxRequest, count: int, due_ms: int | None, why: str | None
) -> NewItem:
    body = request.body
    if why is not None:
        body = replace(body, evidence={**body.evidence, "asked again": why})
    return NewItem(
        id=_id(execution, request, count),
        kind=request.kind,
        step=request.step,
        digest=request.digest,
        body=write_item_body(body),
        to=request.to,
        deadline_ms=due_ms,
    )


def _id(execution: Execution, request: InboxRequest, count: int) -> str:
    part = (request.part,) if request.part else ()
    return item_id(execution.run.id, execution.turn, request.kind, request.step, count, *part)
