"""What reaches a run from outside: signals, controls, people's answers. Also salvage, for its owner."""

from __future__ import annotations

from ninelives.core.errors import Corrupt
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.inbox import Item, ItemKind, ItemState, Signal
from ninelives.core.model.run import Control, Record, RunRow, State
from ninelives.core.rules import inbox_rules, run_rules, validation
from ninelives.core.values import blobs
from ninelives.stores.redis import encoding
from ninelives.stores.redis.journals import require_whole
from ninelives.stores.redis.run_rows import append_records, get_run, save_run
from ninelives.stores.redis.server.lost_writes import LOST
from ninelives.stores.redis.tables import Tables
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import commit_rules as rules


def send_signal(tx: Transaction, run_id: str, name: str, body: bytes, signal_id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run, sent = get_run(tx, run_id), tx.names.sent(run_id)
    field = b"#" + signal_id.encode()
    count, known = tx.fields([(sent, b"n"), (sent, field)])
    if signal_id and known is not None:
        return inbox_rules.same_signal(encoding.signal_of(run_id, known), name, body)
    if run.state.is_final:
        raise run_rules.finished(run, "signalled")
    with encoding.decoding("the count of signals", run_id):
        number = int(count or 0) + 1
    signal = Signal(run=run.id, number=number, name=name, id=signal_id, body=body, at_ms=tx.now_ms)
    raw = encoding.signal_bytes(signal)
    tx.do(b"HSET", tx.names.signals(run_id), str(number), raw)
    tx.do(b"HSET", sent, b"n", number)
    if signal_id:
        tx.do(b"HSET", sent, field, raw)
    save_run(tx, run, run_rules.nudged(run, tx.now_ms))
    tx.wakes = True
    return signal


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
    tables = Tables(tx)
    known = tables.items.get(item_id)
    item = inbox_rules.answered(known, item_id, digest, body, by, tx.now_ms)
    if item is not known:
        tables.items[item_id] = item
        tables.runs[item.run] = run_rules.resolved(tables.runs[item.run], tx.now_ms)
        tables.write_back()
        if item.kind is ItemKind.DAMAGE:  # a person has checked the run
            tx.do(b"HDEL", tx.names.run(item.run), LOST)
        tx.wakes = True
    return item


def salvage(tx: Transaction, run_id: str, epoch: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix; see `Store.salvage`."""
    run = get_run(tx, run_id)
    if run.epoch != epoch or run.state is not State.RUNNING:
        raise validation.not_owned(run.id)
    (lost,) = tx.fields([(tx.names.run(run_id), LOST)])
    require_whole(run, lost)
    records, why = _readable(tx, run)
    found = salvaged(run, records, why, tx.now_ms)
    if found is None:
        return run
    after, said = found
    kept = said.seq - run.base
    if kept:
        tx.do(b"LTRIM", tx.names.journal(run_id), 0, kept - 1)
    else:
        tx.do(b"DEL", tx.names.journal(run_id))
    append_records(tx, run_id, [said])
    save_run(tx, run, after)
    return after


def _readable(tx: Transaction, run: RunRow) -> tuple[list[Record], str]:
    """Return a run's records before the first unreadable one, and why that cannot be read."""
    records: list[Record] = []
    (found,) = tx.ask([(b"LRANGE", tx.names.journal(run.id), 0, -1)])
    for seq, raw in enumerate(found, run.base):
        try:
            record = encoding.record_of(raw, run.id)
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
    (packed,) = tx.ask([(b"GET", tx.names.blob(digest))])
    if packed is None:
        raise Corrupt(f"blob {digest.hex()} is missing")
    blobs.unpack(digest, packed)


def list_inbox(
    tx: Transaction, run: str | None, item: str | None, *, answered: bool, limit: int
) -> list[Item]:
    """Return items, oldest first; see `Store.list_inbox`."""
    names = tx.names
    if item is not None:
        found: list[bytes] = [item.encode()] if validation.is_text(item) else []
    elif run is not None:
        found = tx.ask([(b"ZRANGE", names.items_of(run), 0, -1)])[0] if validation.is_text(run) else []
    else:
        (found,) = tx.ask([(b"ZRANGE", names.all_items if answered else names.inbox, 0, limit - 1)])
    rows = tx.ask([(b"HGET", names.items, name) for name in found]) if found and limit else []
    items = [encoding.item_of(raw) for raw in rows if raw is not None]
    fitting = [one for one in items if run in (None, one.run) and (answered or one.state is ItemState.OPEN)]
    return fitting[:limit]
