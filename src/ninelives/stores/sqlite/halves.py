"""Rows of records. A body is sometimes split over two rows, so that pages are filled.

A page holds whole rows only. Of 1 KiB rows it holds three, and a fifth of it stays empty; of 2 KiB rows one,
and half stays empty. If one record in seven (in three) is split, each page holds a half beside its whole
rows. The second half is a separate row of the same table, in no index. It is inserted first, and the record
holds its rowid.
"""

from __future__ import annotations

from collections import Counter

from ninelives.core.model.run import Record
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import Row

_PAGE_BYTES = 4070  # what rows can fill of a page of 4096 bytes
_ROW_BYTES = 70  # size of a row apart from its body and its step's name
_HALF_BYTES = 40  # overhead of the row of a second half
_LEAST_BYTES = 600  # smaller rows leave little of a page empty
WHOLE_BYTES = _LEAST_BYTES - _ROW_BYTES  # a body and a step's name of together so many are never split
_since: Counter[int] = Counter()  # records since the last split one, by how many whole rows fill a page


def halved(row: Row) -> tuple[Row, Row] | None:
    """Return the two rows of a record, the second half first; None if it is stored whole."""
    body = row[5]
    size = len(body) + len(row[3]) + _ROW_BYTES
    if not _LEAST_BYTES < size < _PAGE_BYTES:
        return None
    whole = _PAGE_BYTES // size
    if _PAGE_BYTES - whole * size < size // 2 + _HALF_BYTES:
        return None
    _since[whole] += 1
    if _since[whole] <= 2 * whole:  # split one of every two pages' worth
        return None
    _since[whole] = 0
    middle = len(body) - size // 2
    second = (row[0], -1, "", "", 0, body[middle:], None, b"", None, None, None)
    return second, (*row[:5], body[:middle], *row[6:])


def record_of(row: Row) -> Record:
    """Return the record of a row whose last column is the second half of its body.

    Raises KeyError for a kind that we never wrote.
    """
    *whole, half = row
    if half is not None:
        whole[4] += half
    return rows.record_of(tuple(whole))
