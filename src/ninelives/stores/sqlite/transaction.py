"""An open transaction, and what several of the store's methods do in theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import apsw
import msgspec

from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow
from ninelives.core.rules import validation
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite import checks, halves
from ninelives.stores.sqlite.files.connection import no_text
from ninelives.stores.sqlite.queries import SQL, for_rows

Values = tuple[Any, ...] | dict[str, Any]
_AT_ONCE = (20, 5, 1)
"""Rows per statement, largest first: only a few sizes, so that all statements stay prepared."""


class Transaction:
    """An open transaction: its cursor, its time, and whether to wake workers or output readers."""

    __slots__ = ("cursor", "emits", "now_ms", "wakes")

    def __init__(self, cursor: apsw.Cursor, now_ms: int) -> None:
        self.cursor = cursor
        self.now_ms = now_ms
        self.wakes = self.emits = False

    def do(self, name: str, values: Values = ()) -> None:
        """Run a statement that returns no rows."""
        try:
            self.cursor.execute(SQL[name], values)
        except UnicodeDecodeError as error:
            raise no_text(error) from error

    def all(self, name: str, values: Values = ()) -> list[rows.Row]:
        """Run a statement to its end and return its rows; none if a value is not valid text.

        Raises Corrupt when a row fails its check.
        """
        try:
            found: list[rows.Row] = self.cursor.execute(SQL[name], values).fetchall()
        except UnicodeEncodeError:
            return []
        except UnicodeDecodeError as error:
            raise no_text(error) from error
        verified = checks.VERIFIED.get(name)
        return [verified(row) for row in found] if verified is not None and found else found

    def many(self, name: str, values: Sequence[Values]) -> list[rows.Row]:
        """Run a statement for each set of values and return all rows, in one call of the driver."""
        try:
            return self.cursor.executemany(SQL[name], values).fetchall()
        except UnicodeDecodeError as error:
            raise no_text(error) from error

    def write(self, name: str, values: Sequence[rows.Row]) -> list[rows.Row]:
        """Write many rows with few statements, each with many rows of values; return what they return.

        The driver releases the interpreter lock (GIL) for each statement. Row by row, it would wait for the
        lock again each time, while the event loop holds it.
        """
        start = 0
        found: list[rows.Row] = []
        for size in _AT_ONCE:
            while len(values) - start >= size:
                given = chain.from_iterable(values[start : start + size])
                found += self.cursor.execute(for_rows(name, size), tuple(given))
                start += size
        return found

    def changes(self) -> int:
        """Return how many rows this connection has changed so far."""
        return self.cursor.connection.total_changes()

    def one(self, name: str, values: Values = ()) -> rows.Row | None:
        """Run a statement to its end and return its first row, if there is one."""
        found = self.all(name, values)
        return found[0] if found else None


def find_run(tx: Transaction, run: str) -> RunRow | None:
    """Return a run's row, if there is one."""
    row = tx.one("read_run", (run,))
    if row is None:
        _confirm_missing(tx, [run])
        return None
    with decoding("the run's row", run):
        return rows.run_of(row)


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist, in the order of `names`."""
    try:
        found = tx.all("read_runs", (msgspec.json.encode(names).decode(),))
    except UnicodeEncodeError:  # a name that is not valid text matches no run; do not fail the others
        return {run: row for run in names if (row := find_run(tx, run)) is not None}
    with decoding("a run's row"):
        by_name = {row[0]: rows.run_of(row) for row in found}
    _confirm_missing(tx, [run for run in names if run not in by_name])
    return {run: by_name[run] for run in names if run in by_name}


def _confirm_missing(tx: Transaction, names: Sequence[str]) -> None:
    """Search for missing runs by another index: a damaged one must not let a run be created twice.

    Raises Corrupt when it finds one.
    """
    if not names:
        return
    try:
        for (name,) in tx.all("run_ids_again", (msgspec.json.encode(names).decode(),)):
            raise checks.hidden("runs", name)
    except UnicodeEncodeError:
        return  # a name that is not valid text matches no run


def get_run(tx: Transaction, run: str) -> RunRow:
    """Return a run's row. Raises UnknownRun."""
    found = find_run(tx, run)
    if found is None:
        raise validation.unknown_run(run)
    return found


def save_runs(tx: Transaction, changed: Iterable[RunRow]) -> None:
    """Write the changed columns of runs' rows, with their checks."""
    sealed = map(checks.sealed_run, changed)
    tx.write("update_run", [rows.changes_of(row) + row[-2:] for row in sealed])


def save_labels(tx: Transaction, run: RunRow, *, is_gone: bool = False) -> None:
    """Insert the labels by which a run can be found; with `is_gone`, delete them."""
    labels = msgspec.json.encode(run.labels).decode()
    tx.do("delete_labels" if is_gone else "insert_labels", (labels, run.number))


def append_all(tx: Transaction, appended: Sequence[tuple[int, Sequence[Record]]]) -> None:
    """Insert the sealed records of many runs, by number, and store which blobs they refer to.

    Few calls of the driver for all of them: a call costs as much as the work it does.
    """
    whole: list[rows.Row] = []
    for number, records in appended:
        for record in records:
            row = rows.row_of_record(number, record)
            is_small = len(record.body) + len(record.step) <= halves.WHOLE_BYTES
            parts = None if is_small else halves.halved(row)
            if parts is None:
                whole.append(row)
            else:
                tx.do("insert_record", parts[0])
                tx.do("insert_halved", parts[1])
            if record.blobs:
                refer(tx, number, record.blobs)
    tx.write("insert_record", whole)


def delete_records(tx: Transaction, number: int, before: int) -> int:
    """Delete the records of a run before a position; return how many. `number` is the run's."""
    tx.do("delete_halves", (number, before))
    return len(tx.all("delete_records", (number, before)))


def refer(tx: Transaction, number: int, digests: Iterable[bytes]) -> None:
    """Keep blobs alive for as long as the run's journal."""
    for digest in digests:
        tx.do("refer_blob", checks.sealed("blob_runs", (digest, number)))


def find_key(tx: Transaction, key: str) -> Key | None:
    """Return a business key's row, if it was ever used."""
    row = tx.one("read_key", (key,))
    if row is None:
        if tx.one("key_again", (key,)) is not None:
            raise checks.hidden("keys", key)  # reading it as unused would repeat the action it protects
        return None
    with decoding(f"the key {key!r}"):
        return rows.key_of(row)


def save_key(tx: Transaction, key: Key) -> None:
    """Write a business key's row."""
    tx.do("write_key", checks.sealed("keys", rows.row_of_key(key)))
