"""No effect without a permitting verdict: which starts in a journal lack one.

What must not be done twice (non-resumable and keyed actions) has an intent before its body starts. Where a
policy governs, the intent, or the first record of the step, says how the call was judged. So for each intent
there must be a verdict that permits it: allowed or rewritten, or asked and then approved by a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import Says, read_taken
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, Record
from ninelives.governance.audit_log.recorded_verdicts import (
    ALLOWED,
    ASKED,
    DENIED,
    REWRITTEN,
    RecordedVerdict,
    is_start,
    verdict_of,
)


def effects_in(records: Sequence[Record]) -> int:
    """Count the starts of what must not be done twice."""
    return sum(is_start(record) for record in records)


def unpermitted(
    records: Sequence[Record], policies: Mapping[str, int], governed_since_ms: int | None
) -> Iterator[tuple[Record, str]]:
    """Yield each start without a permitting verdict, and what is wrong with it.

    `policies` are the digests that the log names, and `governed_since_ms` is when the first of them was
    loaded; None: there was none. A start without a verdict is wrong from then on, and in a run where any call
    was judged before it.
    """
    verdicts: dict[str, RecordedVerdict] = {}
    approved: set[str] = set()
    is_judged = False
    for record in records:
        found = verdict_of(record)
        if found is not None:
            verdicts[record.step], is_judged = found, True
        if record.kind is Kind.ANSWER and _approves(record):
            approved.add(record.step)
        if not is_start(record):
            continue
        # The start after one that was proved not done is judged again, in its own record.
        verdict = found or verdicts.get(record.step)
        if verdict is None:
            is_governed = is_judged or (governed_since_ms is not None and record.at_ms >= governed_since_ms)
            if is_governed and record.step not in approved:
                yield record, "was started without a verdict of a policy or an approval"
        elif verdict.v == DENIED:
            yield record, "was started, although it was denied"
        elif verdict.v == ASKED and record.step not in approved:
            yield record, "was started, although a person was to decide and has not approved it"
        elif verdict.v not in (ALLOWED, REWRITTEN, ASKED):
            yield record, f"was started by a verdict {verdict.v!r} that permits nothing"
        elif verdict.p and verdict.p not in policies:
            yield record, f"was judged by a policy {verdict.p[:16]} that the log does not name"


def _approves(record: Record) -> bool:
    try:
        taken = read_taken(record)
    except Corrupt:
        return False
    return taken.kind is ItemKind.APPROVAL and taken.answer.says is Says.APPROVED
