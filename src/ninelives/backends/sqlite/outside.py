"""What comes to a run from outside: signals, controls, people's answers."""

from __future__ import annotations

from msgspec.structs import replace

from ninelives.backends.sqlite import rows
from ninelives.backends.sqlite.transaction import Transaction, decoding, end_run, find_run, get_run, save_run
from ninelives.core import runs
from ninelives.core.errors import IdConflict, StaleAnswer
from ninelives.core.model import Control, Item, ItemState, Run, Signal


def send_signal(tx: Transaction, run_id: str, name: str, body: bytes, signal_id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run = get_run(tx, run_id)
    if signal_id:
        row = tx.one("read_signal", (run.number, signal_id))
        if row is not None:
            known = rows.signal_of(run.id, row)
            if (known.name, known.body) == (name, body):
                return known
            raise IdConflict(
                f"signal {signal_id!r} was sent with another name or value",
                run=run.id,
                remedy="Use another id for another signal",
            )
    if run.state.is_final:
        raise runs.finished(run, "signalled")
    number = tx.all("next_signal_number", (run.number,))[0][0]
    tx.do("insert_signal", (run.number, number, name, signal_id, body, tx.now_ms))
    save_run(tx, runs.nudged(run, tx.now_ms))
    tx.wakes = True
    return Signal(run=run.id, number=number, name=name, id=signal_id, body=body, at_ms=tx.now_ms)


def control(tx: Transaction, run_id: str, asked: Control) -> Run:
    """Cancel, pause, resume or retry; see `Store.control_run`."""
    run = get_run(tx, run_id)
    after = runs.controlled(run, asked, tx.now_ms)
    if after is not run:
        save_run(tx, after)
        tx.wakes = True
        if after.state.is_final:
            end_run(tx, after)
    return after


def answer(tx: Transaction, item_id: str, digest: bytes, body: bytes, by: str) -> Item:
    """Answer an inbox item; see `Store.answer_item`."""
    row = tx.one("read_item", (item_id,))
    if row is None:
        raise StaleAnswer(f"there is no inbox item {item_id!r}", remedy="List the inbox again")
    with decoding("an inbox item"):
        item = rows.item_of(row)
    if item.digest != digest:
        raise StaleAnswer(
            f"what item {item_id!r} asks about is not what was shown",
            run=item.run,
            step=item.step,
            remedy="Look at it again and answer what it says now",
        )
    if item.state is ItemState.ANSWERED and (item.answer, item.by) == (body, by):
        return item
    if item.state is not ItemState.OPEN:
        raise StaleAnswer(
            f"item {item_id!r} is {item.state}" + (f" by {item.by}" if item.by else ""),
            run=item.run,
            step=item.step,
            remedy="Each question counts one answer; list the inbox again",
        )
    tx.do("answer_item", (body, by, tx.now_ms, item.id))
    run = find_run(tx, item.run)
    if run is not None:
        save_run(tx, runs.resolved(run, tx.now_ms))
    tx.wakes = True
    return replace(item, state=ItemState.ANSWERED, answer=body, by=by, answered_ms=tx.now_ms)
