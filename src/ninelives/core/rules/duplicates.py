"""Proved duplicates: what a journal, or two of them, show to have been done twice.

A step that was begun again after a death is a *possible* duplicate: it may have been begun twice and done
once. Proved is only what the records themselves contradict:

- recorded: a step has two outcomes
- once: a non-resumable action was started again although no start before it was voided
- key: a run settled a business key that another run has settled as its first use

None of these can be written by a worker that owns its run. They come of lost writes, of a store that was put
back to an earlier state, or of a fault in Nine Lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ninelives.core.journal.settlement import read_start
from ninelives.core.model.run import Kind, Record
from ninelives.core.rules.lost_rows import SECOND_USE
from ninelives.core.rules.recovery_check import summary_of

RECORDED, ONCE, KEY = "recorded", "once", "key"
KINDS = (RECORDED, ONCE, KEY)
_LIMITED = b'"l":'
_RESETTING = frozenset({Kind.TURN, Kind.SUPERSEDED, Kind.FORKED, Kind.SALVAGED})


def duplicates_in(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the words of each duplicate in records whose chain was verified. Raises Corrupt."""
    kept = list(records)
    for fault in summary_of(kept).faults:
        yield RECORDED, fault
    started: dict[str, int] = {}
    for record in kept:
        if record.kind in _RESETTING:
            started.clear()  # what was started before is counted again, or belongs to another run
        elif record.kind is Kind.VOIDED:
            started.pop(record.step, None)
        elif record.kind is Kind.INTENT and _LIMITED in record.body and read_start(record).l > 0:
            # Only the start of a non-resumable action has a time limit.
            if record.step in started:
                first = started[record.step]
                yield (
                    ONCE,
                    f"step {record.step} was started by record {first} and again by record {record.seq}",
                )
            started[record.step] = record.seq


def is_second_use(what: str) -> str:
    """Return KEY if a fault of `lost_rows.lost_keys` proves that two runs settled the key; else nothing."""
    return KEY if SECOND_USE in what else ""
