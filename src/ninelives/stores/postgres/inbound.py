"""What reaches a run from outside: signals, controls, people's answers. Also salvage, for its owner."""

from __future__ import annotations

from ninelives.core.errors import Corrupt
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Control, Record, RunRow, State
from ninelives.core.rules import inbox_rules, run_rules, validation
from ninelives.core.values import blobs
from ninelives.stores.postgres.tables import Tables
from ninelives.stores.postgres.transaction import Transaction, append_all, decoding, get_run, save_runs, texts
from ninelives.stores.shared import commit_rules as rules
from ninelives.stores.shared import rows


def send_signal(tx: Transaction, run_id: str, name: str, body: bytes, signal_id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run = get_run(tx, run_id, lock=True)
    if signal_id:
        for row in tx.all("read_signal", (run.number, signal_id)):
            return inbox_rules.same_signal(rows.signal_of(run.id, row), name, body)
    if run.state.is_final:
        raise run_rules.finished(run, "signalled")
    ((number,),) = tx.all("next_signal_number", (run.number,))
    tx.do("insert_signal", (run.number, number, name, signal_id, body, tx.now_ms))
    save_runs(tx, [run_rules.nudged(run, tx.now_ms)])
    tx.wakes = True
    return Signal(run=run.id, number=number, name=name, id=signal_id, body=body, at_ms=tx.now_ms)


def control(tx: Transaction, run_id: str, wanted: Control) -> RunRow:
    """Cancel, pause, resume or retry; see `Store.control_run`."""
    tables = Tables(tx)
    run = tables.runs.get(run_id)
    if run is None:
        raise validation.unknown_run(run_id)
    after = run_rules.controlled(run, wanted, tx.now_ms)
    if after is not run:
        tables.runs[run_id] = after
        if after.state.is_final:
            rules.end(tables.rows, after, tx.now_ms)
        tables.write_back()
        tx.wakes = True
    return after


def answer(tx: Transaction, item_id: str, digest: bytes, body: bytes, by: str) -> Item:
    """Answer an inbox item; see `Store.answer_item`."""
    # An item never changes its run, whose row guards it: lock that row first, then read the item again.
    for row in tx.all("read_items", (texts([item_id]),)):
        run = get_run(tx, row[1], lock=True)
    found = tx.all("read_items", (texts([item_id]),))
    with decoding("an inbox item"):
        known = rows.item_of(found[0]) if found else None
    item = inbox_rules.answered(known, item_id, digest, body, by, tx.now_ms)
    if item is not known:
        tx.do("update_item", (item.state.value, item.answer, item.by, item.answered_ms, item.id))
        save_runs(tx, [run_rules.resolved(run, tx.now_ms)])
        tx.wakes = True
    return item


def salvage(tx: Transaction, run_id: str, epoch: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix; see `Store.salvage`."""
    run = get_run(tx, run_id, lock=True)
    if run.epoch != epoch or run.state is not State.RUNNING:
        raise validation.not_owned(run.id)
    records, why = _readable(tx, run)
    found = salvaged(run, records, why, tx.now_ms)
    if found is None:
        return run
    after, said = found
    tx.do("cut_records", (run.number, said.seq))
    append_all(tx, [(run.number, [said])])
    save_runs(tx, [after])
    return after


def _readable(tx: Transaction, run: RunRow) -> tuple[list[Record], str]:
    """Return a run's records before the first unreadable one, and why that cannot be read."""
    records: list[Record] = []
    for seq, row in enumerate(tx.all("read_records", (run.number, run.base)), run.base):
        try:
            with decoding("a record", run.id):
                record = rows.record_of(row)
            if record.seq != seq:
                return records, f"record {seq} is missing"
            for digest in record.blobs:
                _require_blob(tx, digest)
        except Corrupt as error:
            return records, error.what
        records.append(record)
    is_short = run.base + len(records) < run.length
    return records, f"record {run.base + len(records)} is missing" if is_short else "a checksum fails"


def _require_blob(tx: Transaction, digest: bytes) -> None:
    found = tx.all("read_blobs", ([digest],))
    if not found:
        raise Corrupt(f"blob {digest.hex()} is missing")
    blobs.unpack(digest, found[0][1])
