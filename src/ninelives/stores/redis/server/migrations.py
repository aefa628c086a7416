"""How one run's row comes from a version to the next. Each gives the same whenever it is asked again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Record
from ninelives.core.model.totals import summed
from ninelives.stores.redis import encoding


def second(run: str, tail: bytes, records: Sequence[bytes]) -> bytes:
    """Say at the end of the tail what the row sums up of its journal; records of before stay as they are.

    A damaged record is left out: whoever takes the run up finds it.
    """
    if encoding.has_sums(tail):
        return tail
    found: list[Record] = []
    for raw in records:
        with suppress(Corrupt):
            found.append(encoding.record_of(raw, run))
    return tail + b" " + encoding.sums_of(summed(found))
