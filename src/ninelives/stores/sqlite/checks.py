"""A check in every row, computed over all its columns, and verified whenever the row is read.

The file is an ordinary SQLite file, so its pages carry no checksums (see docs/decisions/0020). Records and
log entries are chained. Every other row has a check: BLAKE2b over the table's name and the values. A run's
row has two: `hot` covers the columns that an append changes and those that fence it, and `check` covers all
that an append leaves unchanged. So an append need neither read the row first nor know all of it.

A statement that changes part of a row does so with the SQL function `resealed`, which verifies the old check
before it computes the new one. Otherwise a flipped bit would be sealed with the rest of the row and never be
found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import apsw
import msgspec

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import RunRow
from ninelives.stores.shared import rows
from ninelives.stores.sqlite.queries import COLUMNS

CHECK_BYTES = 8
HOT: dict[str, tuple[rows.Row, bytes, rows.Row]] = {}
"""For runs that this process owns, by id: the values of the `hot` columns that it last wrote, and their
check; then the whole row with its checks as it was before all appends.

These are only hints. An append that uses one (`append_known`) writes or compares all of these columns, and
only if the check in the row is the one that is known here.
"""
# A worker that runs for months must not keep a row of every run;
# losing all hints costs one slower append each.
HOT_AT_MOST = 20_000
_WRITTEN: dict[str, rows.Row] = {}
"""Rows of runs without an owner that this process wrote lately, by id, with their checks: created or ended.

A row that is read and equals one of these needs no hash: its checks were computed here from these values.
"""
_WRITTEN_AT_MOST = 1_000
_encoded = msgspec.msgpack.Encoder().encode
# The table's name is in the hash: a row that damage moved into another table fails there.
_BEGUN = {table: blake2b(digest_size=CHECK_BYTES, person=table.encode()) for table in COLUMNS}
_RUN_OF = {"runs": 0, "items": 1, "keys": 3}
"""By table, which column holds the id of the run, for tables that have one."""


def seal(table: str, values: Sequence[Any]) -> bytes:
    """Return the check of a row."""
    made = _BEGUN[table].copy()  # faster than a new hash each time
    made.update(_encoded(values))
    return made.digest()


def sealed(table: str, values: Sequence[Any]) -> rows.Row:
    """Return the values of a row, as SQLite will return them, with their check."""
    # SQLite has no booleans: it returns 1 for True, and msgpack encodes the two differently.
    plain = tuple(int(value) if value.__class__ is bool else value for value in values)
    return (*plain, seal(table, plain))


# Runs: two checks --------------------------------------------------------------------------------

_NUMBER, _STATE, _EPOCH, _HEAD, _BASE, _CHANGED = map(
    COLUMNS["run"].index, ("number", "state", "epoch", "head", "base", "changed_ms")
)
_ENDED = tuple(
    (COLUMNS["run"].index(name), value)
    for name, value in {
        "state": "completed",
        "session": None,
        "due_ms": None,
        "waits": "",
        "deaths": 0,
        "solo_deaths": 0,
        "is_alone": 0,
        "left_by": None,
    }.items()
)


def sealed_run(run: RunRow) -> rows.Row:
    """Return the whole row of a run, as SQLite will return it, with both its checks."""
    made = list(rows.row_of(run))
    for at in rows.FLAGS_AT:
        made[at] = int(made[at])
    row = tuple(made)
    cold, hot = _of_run(row)
    whole = (*row, cold, hot)
    if run.session is not None:
        if len(HOT) >= HOT_AT_MOST:
            HOT.clear()
        # Only runs with a session: an append needs an owner, and a row without one has no next append.
        HOT[run.id] = (hot_of(row), hot, whole)
    else:
        _remember(whole)
    return whole


def ended(row: rows.Row, after: rows.Row) -> rows.Row:
    """Return the row of a run that has been completed, with its checks; see `append_end_known`.

    `row` is its row before all appends, and `after` are the columns that an append changes.
    """
    made = list(row[:-2])
    for at, value in _ENDED:
        made[at] = value
    made[_HEAD:_BASE], made[_CHANGED:] = after[:2], after[2:]
    whole = (*made, *_of_run(made))
    _remember(whole)
    return whole


def _remember(whole: rows.Row) -> None:
    if len(_WRITTEN) >= _WRITTEN_AT_MOST:
        _WRITTEN.clear()
    _WRITTEN[whole[0]] = whole


def cold_of(row: Sequence[Any]) -> Sequence[Any]:
    """Return of all columns of a run those that its first check is made of."""
    # `epoch` and `state` are in both checks: either of them alone must find a damaged fence.
    return [*row[:_HEAD], *row[_BASE:_CHANGED]]


def hot_of(row: Sequence[Any]) -> rows.Row:
    """Return of all columns of a run those that its second check is made of."""
    return (row[_NUMBER], row[_EPOCH], row[_STATE], *row[_HEAD:_BASE], *row[_CHANGED:])


def _of_run(row: Sequence[Any]) -> tuple[bytes, bytes]:
    return seal("runs", cold_of(row)), seal("hot", hot_of(row))


# Reading -----------------------------------------------------------------------------------------


def _whole(table: str, skip: int = 0, hidden: int = 1) -> Callable[[rows.Row], rows.Row]:
    """Return a verifier of rows that end with their check.

    The first `skip` columns are not the table's; the last `hidden` are not returned to the caller.
    """
    named = _RUN_OF.get(table)

    def verify(row: rows.Row) -> rows.Row:
        if seal(table, row[skip:-1]) != row[-1]:
            raise damaged(table, row[skip], row[skip + named] if named is not None else None)
        return row[:-hidden]

    return verify


def _run(row: rows.Row) -> rows.Row:
    values = row[:-2]
    if _WRITTEN.get(row[0]) != row and _of_run(values) != row[-2:]:
        raise damaged("runs", row[0], row[0])
    return values


def damaged(table: str, name: object, run: object = None) -> Corrupt:
    """Return the error for a row that fails its check."""
    return Corrupt(
        f"a row of {table} ({str(name)[:80]!r}) fails its check: it is not what was written",
        run=run if isinstance(run, str) else None,
        remedy="It was not used; other runs continue. Restore the store from a backup, or end this run",
    )


def hidden(table: str, name: object) -> Corrupt:
    """Return the error for a row that one index finds and another does not."""
    return Corrupt(
        f"an index of {table} is damaged: it does not lead to {str(name)[:80]!r}, and another one does",
        remedy="Restore the store from a backup; `ninelives store verify` says more",
    )


VERIFIED: dict[str, Callable[[rows.Row], rows.Row]] = {
    **dict.fromkeys(("read_store",), _whole("store")),
    **dict.fromkeys(
        (
            "read_run",
            "read_runs",
            "list_runs",
            "list_ended",
            "list_labelled",
            "family_waiting",
            "list_children",
            "runs_of_session",
            "read_run_by_number",
            "due_runs",
        ),
        _run,
    ),
    **dict.fromkeys(
        ("read_signal", "waiting_signals", "signals_of_run", "all_signals"), _whole("signals", hidden=2)
    ),
    "signals_of_runs": _whole("signals", skip=1, hidden=2),
    **dict.fromkeys(
        (
            "read_item",
            "items_of_run",
            "open_items_of_run",
            "items_of_runs",
            "list_inbox",
            "list_open_items",
            "all_items",
        ),
        _whole("items"),
    ),
    **dict.fromkeys(
        ("read_key", "held_keys_of_run", "keys_of_run", "settled_keys_of_run", "all_keys", "list_keys"),
        _whole("keys"),
    ),
    "waiters": _whole("waiters", hidden=2),
    **dict.fromkeys(("waits", "all_waiters"), _whole("waiters")),
    "all_labels": _whole("labels"),
    **dict.fromkeys(
        ("read_session", "live_sessions", "expired_sessions", "all_sessions", "old_sessions"),
        _whole("sessions"),
    ),
    "read_log_base": _whole("log_base"),
    **dict.fromkeys(("read_counter", "all_counters"), _whole("counters")),
    **dict.fromkeys(("read_document", "list_documents", "all_documents"), _whole("documents")),
    "read_blob": _whole("blobs", skip=1, hidden=3),
    "old_blobs": _whole("blobs"),
    "blob_references": _whole("blob_runs"),
}
"""By statement, how its rows are verified, and which of their columns the caller gets."""


# In SQL ------------------------------------------------------------------------------------------


def register(connection: apsw.Connection) -> None:
    """Give a connection the SQL functions that compute and verify checks.

    No schema names them, so a stock tool can read, copy and change the file without them.
    """
    functions: dict[str, Callable[..., Any]] = {"sealed": _sealed, "resealed": _resealed, "intact": _intact}
    for name, function in functions.items():
        connection.create_scalar_function(name, function, deterministic=True)


def _sealed(table: str, *values: Any) -> bytes:
    return seal(table, values)


def _resealed(table: str, check: bytes, *values: Any) -> bytes:
    """Verify the check over the first half of the values; return the check over the second half."""
    half = len(values) // 2
    before, after = values[:half], values[half:]
    if seal(table, before) != check:
        raise damaged(table, values[0])
    return seal(table, after)


def _intact(table: str, check: bytes, *values: Any) -> bool:
    if seal(table, values) != check:
        raise damaged(table, values[0])
    return True
