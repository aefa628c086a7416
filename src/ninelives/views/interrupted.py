"""What became of the steps that were running when a worker died, from the records after the takeover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ninelives.core.errors import Corrupt
from ninelives.core.journal.settlement import read_start
from ninelives.core.model.run import Kind, Record
from ninelives.core.step_ids import step_text

_MOST_STEPS = 5
_OUTCOMES = (Kind.RESULT, Kind.FAILURE)


def interrupted_text(steps: Sequence[str], records: Sequence[Record], taken: int) -> list[str]:
    """Return what became of interrupted steps, in words; `taken` is the journal's length at the takeover."""
    found: dict[str, list[str]] = {}
    for step in steps:
        found.setdefault(_fate(step, records, taken), []).append(step_text(step))
    return [
        f"{fate}: {', '.join(names[:_MOST_STEPS])}{'…' if len(names) > _MOST_STEPS else ''}"
        for fate, names in found.items()
    ]


def _fate(step: str, records: Sequence[Record], taken: int) -> str:
    own = [record for record in records if record.step == step]
    after = [record.kind for record in own if record.seq >= taken]
    if not own or not after:
        return "interrupted"  # pruned, or nothing has come of it yet
    is_protected = _is_protected(record for record in own if record.kind is Kind.INTENT)
    if is_protected and Kind.INTENT in after:
        return "proved not done, and started again" if Kind.VOIDED in after else "started again"
    if is_protected and any(kind in _OUTCOMES for kind in after):
        return "settled, and not executed again"
    if Kind.DOUBT in after:
        return "in doubt"
    if Kind.VOIDED in after:
        return "proved not done"
    return "executed again" if any(kind in _OUTCOMES for kind in after) else "interrupted"


def _is_protected(intents: Iterable[Record]) -> bool:
    """Return whether an intent is of a non-resumable action: only those record their session."""
    try:
        return any(read_start(record).w for record in intents)
    except Corrupt:
        return False
