"""How one run's row gets from one version to the next. Each function is deterministic and idempotent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Record
from ninelives.core.model.totals import summed
from ninelives.stores.redis import encoding


def second(run: str, tail: bytes, records: Sequence[bytes]) -> bytes:
    """Append the sums of the journal to the tail; older records stay as they are.

    A damaged record is skipped: the next worker that loads the run finds it.
    """
    if encoding.has_sums(tail):
        return tail
    found: list[Record] = []
    for raw in records:
        with suppress(Corrupt):
            found.append(encoding.record_of(raw, run))
    return tail + b" " + encoding.sums_of(summed(found))
