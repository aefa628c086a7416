"""One open transaction, and what several of the store's methods do in theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import msgspec

from ninelives.backends import rows
from ninelives.backends.sqlite.queries import SQL
from ninelives.core import dedup, faults, runs
from ninelives.core.errors import BadRecord, Corrupt
from ninelives.core.keyring import Key
from ninelives.core.model import Control, Record, Run

Values = tuple[Any, ...] | dict[str, Any]


class Transaction:
    """An open transaction: its cursor, its time, and who is to be woken after it."""

    __slots__ = ("cursor", "emits", "now_ms", "wakes")

    def __init__(self, cursor: apsw.Cursor, now_ms: int) -> None:
        self.cursor = cursor
        self.now_ms = now_ms
        self.wakes = self.emits = False

    def do(self, name: str, values: Values = ()) -> None:
        """Run a statement that gives no rows."""
        self.cursor.execute(SQL[name], values)

    def all(self, name: str, values: Values = ()) -> list[rows.Row]:
        """Run a statement to its end and return its rows; a name that is no text names nothing."""
        try:
            return self.cursor.execute(SQL[name], values).fetchall()
        except UnicodeEncodeError:
            return []

    def many(self, name: str, values: Sequence[Values]) -> list[rows.Row]:
        """Run a statement for each set of values and return all rows: one call of the driver."""
        return self.cursor.executemany(SQL[name], values).fetchall()

    def one(self, name: str, values: Values = ()) -> rows.Row | None:
        """Run a statement to its end and return its first row, if there is one."""
        found = self.all(name, values)
        return found[0] if found else None


@contextmanager
def decoding(what: str, run: str | None = None) -> Iterator[None]:
    """Turn values that nobody ever wrote into Corrupt."""
    try:
        yield
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise Corrupt(
            f"{what} holds what was never written: {error}",
            run=run,
            remedy="Restore the store from a backup; other runs go on",
        ) from error


def find_run(tx: Transaction, run: str) -> Run | None:
    """Return a run's row, if there is one."""
    row = tx.one("read_run", (run,))
    if row is None:
        return None
    with decoding("the run's row", run):
        return rows.run_of(row)


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, Run]:
    """Return the rows of those runs that there are, in the order of their names."""
    try:
        found = tx.all("read_runs", (msgspec.json.encode(names).decode(),))
    except UnicodeEncodeError:  # a name that is no text names nothing, and the others are as good as ever
        return {run: row for run in names if (row := find_run(tx, run)) is not None}
    with decoding("a run's row"):
        by_name = {row[0]: rows.run_of(row) for row in found}
    return {run: by_name[run] for run in names if run in by_name}


def get_run(tx: Transaction, run: str) -> Run:
    """Return a run's row. Raises UnknownRun."""
    found = find_run(tx, run)
    if found is None:
        raise faults.unknown_run(run)
    return found


def save_run(tx: Transaction, run: Run) -> None:
    """Write what has changed of a run's row."""
    tx.do("update_run", rows.changes_of(run))


def nudge(tx: Transaction, run: str) -> None:
    """Give a run news, if it is still there and has not ended."""
    found = find_run(tx, run)
    if found is not None and not found.state.is_final:
        save_run(tx, runs.nudged(found, tx.now_ms))
        tx.wakes = True


def append_all(tx: Transaction, appended: Sequence[tuple[int, Sequence[Record]]]) -> None:
    """Insert the sealed records of many runs, by number, and note the blobs that they refer to.

    One call of the driver for all of them: each call costs as much as what it does.
    """
    tx.many(
        "insert_record",
        [rows.row_of_record(number, record) for number, records in appended for record in records],
    )
    for number, records in appended:
        for record in records:
            if record.blobs:
                refer(tx, number, record.blobs)


def refer(tx: Transaction, number: int, digests: Iterable[bytes]) -> None:
    """Keep blobs for as long as the run's journal."""
    for digest in digests:
        tx.do("refer_blob", (digest, number))


def lost_blob(tx: Transaction, digests: Iterable[bytes], run: str) -> BadRecord | None:
    """Return the error for the first blob that is referred to and not there."""
    for digest in digests:
        if tx.one("has_blob", (digest,)) is None:
            return faults.lost_blob(run, digest)
    return None


def find_key(tx: Transaction, key: str) -> Key | None:
    """Return a business key's row, if it was ever used."""
    row = tx.one("read_key", (key,))
    if row is None:
        return None
    with decoding(f"the key {key!r}"):
        return rows.key_of(row)


def save_key(tx: Transaction, key: Key) -> None:
    """Write a business key's row."""
    tx.do("write_key", rows.row_of_key(key))


def tell_waiters(tx: Transaction, key: str) -> None:
    """Give news to the runs that wait for a key."""
    for (run,) in tx.all("waiters", (key,)):
        nudge(tx, run)
    tx.do("drop_waiters", (key,))


def end_run(tx: Transaction, run: Run) -> None:
    """Do what a run's end brings: its items close, its keys pass on, its parent has news."""
    tx.do("close_items_of_run", (run.id,))
    held = tx.all("held_keys_of_run", (run.id,))
    for row in held:
        with decoding("a key", run.id):
            key = rows.key_of(row)
        save_key(tx, dedup.orphaned(key, tx.now_ms))
        tell_waiters(tx, key.key)
    tx.do("drop_waits", (run.id,))
    if run.parent is not None:
        nudge(tx, run.parent)
    if runs.takes_along(run):
        _cancel_children(tx, run.id)
    tx.wakes = True


def _cancel_children(tx: Transaction, parent: str) -> None:
    for (name,) in tx.all("live_children", (parent,)):
        with suppress(Corrupt):  # a damaged child does not keep its parent from ending
            child = runs.controlled(get_run(tx, name), Control.CANCEL, tx.now_ms)
            save_run(tx, child)
            if child.state.is_final:
                end_run(tx, child)
