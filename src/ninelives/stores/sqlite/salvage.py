"""Salvage in SQLite: the run moves to a new number, with its good records.

Damaged records may be on pages that cannot be read, so deleting them may fail. They stay under the old
number, which no run has any more, and are deleted if possible. See docs/decisions/0008.
"""

from __future__ import annotations

from contextlib import suppress

import apsw
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, StoreError
from ninelives.core.journal.salvage import salvaged
from ninelives.core.model.run import Record, RunRow, State
from ninelives.core.rules import validation
from ninelives.core.values import blobs
from ninelives.stores.sqlite import halves
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.transaction import (
    Transaction,
    append_all,
    decoding,
    delete_records,
    get_run,
    save_labels,
    save_run,
)


def salvage(files: Database, run_id: str, epoch: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix; see `Store.salvage`."""
    run, records, why, now_ms = files.read(lambda tx: (*_readable(tx, run_id), tx.now_ms))
    _require_owner(run, epoch)
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


def _readable(tx: Transaction, run_id: str) -> tuple[RunRow, list[Record], str]:
    """Return a run's row, its records before the first unreadable one, and why that cannot be read."""
    run = get_run(tx, run_id)
    records: list[Record] = []
    for seq in range(run.base, run.length):
        try:
            row = tx.one("read_record", (run.number, seq))
            if row is None:
                return run, records, f"record {seq} is missing"
            with decoding("a record", run_id):
                record = halves.record_of(row)
            for digest in record.blobs:
                _read_blob(tx, digest)
        except (apsw.Error, Corrupt) as error:
            return run, records, str(error) if isinstance(error, apsw.Error) else error.what
        records.append(record)
    return run, records, "a checksum fails"


def _read_blob(tx: Transaction, digest: bytes) -> None:
    row = tx.one("read_blob", (digest,))
    if row is None:
        raise Corrupt(f"blob {digest.hex()} is missing")
    blobs.unpack(digest, row[0])


def _move(tx: Transaction, known: RunRow, after: RunRow, kept: list[Record]) -> RunRow:
    run = get_run(tx, known.id)
    _require_owner(run, known.epoch)
    if (run.length, run.head) != (known.length, known.head):
        raise validation.not_owned(run.id)
    ((number,),) = tx.all("next_run_numbers", (1,))
    for statement in ("move_run", "move_signals", "move_blobs"):
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
    save_run(tx, moved)
    return moved


def _require_owner(run: RunRow, epoch: int) -> None:
    if run.epoch != epoch or run.state is not State.RUNNING:
        raise validation.not_owned(run.id)
