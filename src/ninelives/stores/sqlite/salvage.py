"""Salvage in SQLite: the run moves to a new number, with its good records.

Damaged records may be on pages that cannot be read, so deleting them may fail. They stay under the old
number, which no run has any more, and are deleted if possible. See docs/decisions/0008.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from ninelives.core.errors import StoreError
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.run import Record, RunRow
from ninelives.core.rules import validation
from ninelives.stores.shared import inbound
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.tables import Tables
from ninelives.stores.sqlite.transaction import (
    Transaction,
    append_all,
    delete_records,
    get_run,
    save_labels,
    save_runs,
)


def salvage(files: Database, run_id: str, epoch: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix; see `Store.salvage`."""

    def read(tx: Transaction) -> tuple[RunRow, list[Record], str, int]:
        run, tables = get_run(tx, run_id), Tables(tx)
        inbound.require_owner(run, epoch)
        return (run, *inbound.readable(run, tables.stored(run), tables.packed), tx.now_ms)

    run, records, why, now_ms = files.read(read)
    found = salvaged(run, records, why, now_ms)
    if found is None:
        return run
    after, said = found
    kept = [*records[: said.seq - run.base], said]
    moved = files.write(lambda tx: _move(tx, run, after, kept))
    # CRASH: the run continues under its new number; the damaged records belong to no run.
    with suppress(StoreError):
        files.write(lambda tx: delete_records(tx, run.number, run.length + 1))
    return moved


def _move(tx: Transaction, known: RunRow, after: RunRow, kept: list[Record]) -> RunRow:
    run = get_run(tx, known.id)
    inbound.require_owner(run, known.epoch)
    # The plan was made from an earlier read: a commit since then would be cut off with the damage.
    if (run.length, run.head) != (known.length, known.head):
        raise validation.not_owned(run.id)
    ((number,),) = tx.all("next_run_numbers", (1,))
    for statement in ("move_run", "move_signals", "move_blobs"):
        # Keys and items name the run by its id and stay; these refer to it by number.
        tx.do(statement, (known.number, number))
    # Changes to the row since it was read (news, a pause) are kept.
    moved = replace(
        run,
        number=number,
        length=after.length,
        head=after.head,
        turn=after.turn,
        turn_seq=after.turn_seq,
        changed_ms=tx.now_ms,
    )
    if run.labels:
        save_labels(tx, run, is_gone=True)
        save_labels(tx, moved)
    append_all(tx, [(number, kept)])
    save_runs(tx, [moved])
    return moved
