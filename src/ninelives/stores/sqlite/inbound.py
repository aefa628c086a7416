"""What reaches a run from outside: signals, controls, people's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ninelives.core.errors import Corrupt
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Control, News, RunRow
from ninelives.core.rules import inbox_rules, run_rules
from ninelives.stores.shared import rows
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.transaction import Transaction, decoding, end_run, get_run, save_run


def send_signal(tx: Transaction, run_id: str, name: str, body: bytes, signal_id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run = get_run(tx, run_id)
    if signal_id:
        row = tx.one("read_signal", (run.number, signal_id))
        if row is not None:
            return inbox_rules.same_signal(rows.signal_of(run.id, row), name, body)
        if tx.one("signal_again", (run.number, signal_id)) is not None:
            raise checks.hidden("signals", signal_id)
    if run.state.is_final:
        raise run_rules.finished(run, "signalled")
    number = tx.all("next_signal_number", (run.number,))[0][0]
    row = (number, name, signal_id, body, tx.now_ms, None, run.number)
    tx.do("insert_signal", checks.sealed("signals", row))
    save_run(tx, run_rules.nudged(run, tx.now_ms))
    tx.wakes = True
    return Signal(run=run.id, number=number, name=name, id=signal_id, body=body, at_ms=tx.now_ms)


def control(tx: Transaction, run_id: str, wanted: Control) -> RunRow:
    """Cancel, pause, resume or retry; see `Store.control_run`."""
    run = get_run(tx, run_id)
    after = run_rules.controlled(run, wanted, tx.now_ms)
    if after is not run:
        save_run(tx, after)
        tx.wakes = True
        if after.state.is_final:
            end_run(tx, after)
    return after


def answer(tx: Transaction, item_id: str, digest: bytes, body: bytes, by: str) -> Item:
    """Answer an inbox item; see `Store.answer_item`."""
    row = tx.one("read_item", (item_id,))
    with decoding("an inbox item"):
        known = rows.item_of(row) if row is not None else None
    item = inbox_rules.answered(known, item_id, digest, body, by, tx.now_ms)
    if item is not known:
        tx.do("answer_item", (body, by, tx.now_ms, item.id))
        save_run(tx, run_rules.resolved(get_run(tx, item.run), tx.now_ms))
        tx.wakes = True
    return item


def read_news(tx: Transaction, seen: Mapping[str, int]) -> list[News]:
    """Return the news of runs whose counter has changed; see `Store.read_news`."""
    found = []
    for run, news in seen.items():
        if tx.one("has_news", (run, news)) is not None:
            try:
                found.append(_news_of(tx, run))
            except Corrupt:
                continue
    return found


def _news_of(tx: Transaction, run_id: str) -> News:
    run = get_run(tx, run_id)
    with decoding("a signal or an inbox item", run_id):
        signals = tuple(rows.signal_of(run.id, row) for row in tx.all("waiting_signals", (run.number,)))
        items = tuple(rows.item_of(row) for row in tx.all("items_of_run", (run.id,)))
    confirm_counts(tx, [run], len(signals), len(items))
    return News(run, signals, items, tx.now_ms)


def confirm_counts(tx: Transaction, of: Sequence[RunRow], signals: int, items: int) -> None:
    """Count the runs' waiting signals and items by another index: a damaged one must not hide any.

    Raises Corrupt.
    """
    numbers = msgspec.json.encode([run.number for run in of]).decode()
    names = msgspec.json.encode([run.id for run in of]).decode()
    if tx.all("count_waiting_signals", (numbers,)) != [(signals,)]:
        raise checks.hidden("signals", "a signal")
    if tx.all("count_items", (names,)) != [(items,)]:
        raise checks.hidden("items", "an item")
