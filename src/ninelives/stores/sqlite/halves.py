"""Rows of records. Now and then a body is kept in two halves, so that pages are filled.

A page holds whole rows only: three of 1 KiB, and a fifth of it stays empty; of 2 KiB one, and half. If one
record in seven (in three) is halved, each page takes a half beside its whole ones. The second half is a row
of its own in the same table, which no index knows: it goes in first, and the record names its place.
"""

from __future__ import annotations

from collections import Counter

from ninelives.core.model.run import Record
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import Row

_PAGE_BYTES = 4070  # what rows can fill of a page of 4096
_ROW_BYTES = 70  # of a row beside its body and its step's name
_HALF_BYTES = 40  # of the row of a second half
_LEAST_BYTES = 600  # of a row: smaller ones leave little empty
_since: Counter[int] = Counter()  # records since one was halved, by how many fill a page


def halved(row: Row) -> tuple[Row, Row] | None:
    """Return the two rows of a record, the second half first; None when it is kept whole."""
    body = row[5]
    size = len(body) + len(row[3]) + _ROW_BYTES
    if not _LEAST_BYTES < size < _PAGE_BYTES:
        return None
    whole = _PAGE_BYTES // size
    if _PAGE_BYTES - whole * size < size // 2 + _HALF_BYTES:
        return None
    _since[whole] += 1
    if _since[whole] <= 2 * whole:  # the one to be halved is one of all that fill two pages
        return None
    _since[whole] = 0
    middle = len(body) - size // 2
    second = (row[0], -1, "", "", 0, body[middle:], None, b"", None, None, None)
    return second, (*row[:5], body[:middle], *row[6:])


def record_of(row: Row) -> Record:
    """Return the record of a row whose last column is the second half of its body.

    Raises KeyError when its kind is none that was ever written.
    """
    *whole, half = row
    if half is not None:
        whole[4] += half
    return rows.record_of(tuple(whole))
