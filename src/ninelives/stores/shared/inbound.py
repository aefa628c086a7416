"""What reaches a run from outside: signals, controls, answers, moves. Also salvage, for its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.capsule import Move
from ninelives.core.model.document import DOCUMENT_BYTES, Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Control, Record, RunRow, State
from ninelives.core.rules import capsules as moves
from ninelives.core.rules import counting, dedup, inbox_rules, run_rules, validation
from ninelives.core.values import blobs
from ninelives.stores.shared import commit_rules
from ninelives.stores.shared.tables import CutTables, OpenTransaction, Rows, Tables


def send_signal(tx: OpenTransaction, tables: Tables, run_id: str, name: str, body: bytes, id: str) -> Signal:
    """Append a signal to a run's queue; see `Store.send_signal`."""
    run = _get_run(tables, run_id)
    known, number = tables.sent(run, id)
    # Before the state: the sender repeats a signal whose answer was lost, and the run may have ended since.
    if known is not None:
        return inbox_rules.same_signal(known, name, body)
    if run.state is State.MOVED:
        raise run_rules.moved_away(run, "signalled")
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
        if run.state.is_final:
            tables.count(counting.retried(run))
        tx.wakes = True
    return after


def answer(tx: OpenTransaction, tables: Tables, item_id: str, digest: bytes, body: bytes, by: str) -> Item:
    """Answer an inbox item; see `Store.answer_item`."""
    known = tables.item(item_id)
    item = inbox_rules.answered(known, item_id, digest, body, by, tx.now_ms)
    if item is not known:
        run = _get_run(tables, item.run)
        if run.state is State.MOVED:
            raise run_rules.moved_away(run, "answered")
        tables.rows.items[item_id] = item
        tables.rows.runs[item.run] = run_rules.resolved(run, tx.now_ms)
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


# Moves -------------------------------------------------------------------------------------------


class KeepsDocuments(Protocol):
    """The documents of one transaction: find one by name, write one that has a version (0: it is new)."""

    @property
    def find(self) -> Callable[[str], Document | None]: ...
    @property
    def write(self) -> Callable[[str, bytes, int], object]: ...


def depart(
    tx: OpenTransaction, tables: Tables, documents: KeepsDocuments, names: Sequence[str], move: Move
) -> list[RunRow]:
    """Fence runs and send them on their way to another store; see `Maintenance.depart_runs`."""
    rows, going = tables.rows, sorted(set(names))
    known = documents.find(moves.OUT + move.id)
    if known is not None:
        journey = moves.read_journey(known.body)
        if journey.stage == "called back" or {one.id for one in journey.runs} != set(going):
            raise UsageError(f"the move {move.id!r} is {journey.stage}, and with other runs")
        return [_get_run(tables, name) for name in going]
    found = [_get_run(tables, name) for name in going]
    for run in found:
        parent = rows.runs.get(run.parent) if run.parent is not None else None
        born = (rows.runs.get(name) for name in rows.children.get(run.id, ()))
        children = [child for child in born if child is not None and child.parent == run.id]
        fault = moves.fault_in_tree(run, going, parent, children)
        if fault is not None:
            raise fault
    body = moves.write_journey(moves.journey_of(found, move))
    if len(body) > DOCUMENT_BYTES:
        raise UsageError(f"{len(found)} runs are too many for one move", remedy="Move smaller trees")
    documents.write(moves.OUT + move.id, body, 0)
    for run in found:
        rows.runs[run.id] = moves.departing(run, move.url, tx.now_ms)
        commit_rules.stop_waiting(rows, run.id)
    tables.write_back()
    tx.wakes = True
    return [_get_run(tables, name) for name in going]


def settle_move(
    tx: OpenTransaction, tables: Tables, documents: KeepsDocuments, move: str, *, arrived: bool
) -> list[RunRow]:
    """End a move: its runs are in the other store, or have never left; see `Maintenance.settle_move`."""
    rows, known = tables.rows, documents.find(moves.OUT + move)
    if known is None:
        raise UsageError(f"there is no move {move!r}", remedy="Begin it with `ninelives move`")
    journey = moves.read_journey(known.body)
    stage: Literal["arrived", "called back"] = "arrived" if arrived else "called back"
    if journey.stage not in ("on its way", stage):
        raise UsageError(f"the move {move!r} is {journey.stage}", remedy="Nothing was changed")
    found = [(_get_run(tables, one.id), one) for one in journey.runs]
    if journey.stage == "on its way":
        for run, before in found:
            if arrived:
                rows.runs[run.id] = moves.arrived(run, journey.url, tx.now_ms)
                _give_up_keys(rows, run.id, journey.url, tx.now_ms)
                commit_rules.close_items(rows, run.id)
            else:
                rows.runs[run.id] = moves.called_back(run, before, tx.now_ms)
        body = moves.write_journey(replace(journey, stage=stage))
        documents.write(moves.OUT + move, body, known.version)
        tables.write_back()
        tx.wakes = True
    return [_get_run(tables, one.id) for one in journey.runs]


def _give_up_keys(rows: Rows, run: str, url: str, now_ms: int) -> None:
    for name in sorted(rows.holds.get(run, ())):
        key = rows.keys.get(name)
        if key is not None and dedup.is_of_owner(key, run):
            rows.keys[name] = moves.moved_key(key, url, now_ms)
            commit_rules.notify_waiters(rows, name, now_ms)
