"""What reaches a run from outside: signals, controls, people's answers. Also salvage, for its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ninelives.core.errors import Corrupt
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Control, Record, RunRow, State
from ninelives.core.rules import inbox_rules, run_rules, validation
from ninelives.core.values import blobs
from ninelives.stores.shared import commit_rules
from ninelives.stores.shared.tables import CutTables, OpenTransaction, Tables


def send_signal(tx: OpenTransaction, tables: Tables, run_id: str, name: str, body: bytes, id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run = _get_run(tables, run_id)
    known, number = tables.sent(run, id)
    # Before the state: the sender repeats a signal whose answer was lost, and the run may have ended since.
    if known is not None:
        return inbox_rules.same_signal(known, name, body)
    if run.state.is_final:
        raise run_rules.finished(run, "signalled")
    signal = Signal(run=run.id, number=number, name=name, id=id, body=body, at_ms=tx.now_ms)
    tables.send(run, signal)
    tables.rows.runs[run.id] = run_rules.nudged(run, tx.now_ms)
    tables.write_back()
    tx.wakes = True
    return signal


def control(tx: OpenTransaction, tables: Tables, run_id: str, wanted: Control) -> RunRow:
    """Cancel, pause, resume or retry; see `Store.control_run`."""
    run = _get_run(tables, run_id)
    after = run_rules.controlled(run, wanted, tx.now_ms)
    if after is not run:
        tables.rows.runs[run_id] = after
        if after.state.is_final:
            commit_rules.end(tables.rows, after, tx.now_ms)
        tables.write_back()
        tx.wakes = True
    return after


def answer(tx: OpenTransaction, tables: Tables, item_id: str, digest: bytes, body: bytes, by: str) -> Item:
    """Answer an inbox item; see `Store.answer_item`."""
    known = tables.item(item_id)
    item = inbox_rules.answered(known, item_id, digest, body, by, tx.now_ms)
    if item is not known:
        tables.rows.items[item_id] = item
        tables.rows.runs[item.run] = run_rules.resolved(_get_run(tables, item.run), tx.now_ms)
        tables.write_back()
        tx.wakes = True
    return item


def salvage(tx: OpenTransaction, tables: CutTables, run_id: str, epoch: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix; see `Store.salvage`."""
    run = _get_run(tables, run_id)
    # Only the owner cuts: a worker that lost the run would cut off what its successor has appended.
    require_owner(run, epoch)
    records, why = readable(run, tables.stored(run), tables.packed)
    found = salvaged(run, records, why, tx.now_ms)
    if found is None:
        return run
    after, said = found
    # Cut before the append: the new record takes the number of the first damaged one.
    tables.cut(run, said.seq)
    tables.append([(run, [said])])
    tables.rows.runs[run.id] = after
    tables.write_back()
    return after


def require_owner(run: RunRow, epoch: int) -> None:
    """Raise LeaseLost unless a run is running under this epoch."""
    if run.epoch != epoch or run.state is not State.RUNNING:
        raise validation.not_owned(run.id)


def readable(
    run: RunRow, stored: Iterable[Record], packed: Callable[[bytes], bytes | None]
) -> tuple[list[Record], str]:
    """Return a run's records before the first unreadable one, and why that cannot be read."""
    records: list[Record] = []
    try:
        for seq, record in enumerate(stored, run.base):
            if record.seq != seq:
                return records, f"record {seq} is missing"
            for digest in record.blobs:
                content = packed(digest)
                if content is None:
                    return records, f"blob {digest.hex()} is missing"
                blobs.unpack(digest, content)
            records.append(record)
    except Corrupt as error:
        return records, error.what
    # All that is there can be read: then the end is missing, or the chain is broken.
    is_short = run.base + len(records) < run.length
    return records, f"record {run.base + len(records)} is missing" if is_short else "a checksum fails"


def _get_run(tables: Tables, run: str) -> RunRow:
    found = tables.rows.runs.get(run)
    if found is None:
        raise validation.unknown_run(run)
    return found
