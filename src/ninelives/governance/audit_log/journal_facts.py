"""What the audit log takes over from a run's journal, and the digest that stands for all of a journal.

An entry's id names the run, the record's number and the beginning of its check: so the same record gives the
same entry, whichever process reads it, and a record that another one has replaced gives another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec
from msgspec import UNSET

from ninelives.core.errors import Corrupt
from ninelives.core.journal.answers import Request, Taken, read_taken
from ninelives.core.model.bodies import body_reader
from ninelives.core.model.run import Kind, Record, RunRow
from ninelives.governance.audit_log.entries import write_entry
from ninelives.governance.audit_log.recorded_verdicts import DENIED, REWRITTEN, verdict_of

RUN_ENDED = "run ended"
_TEXT = 1_000  # of a person's note or a reason: the record's check stands for the rest
_KINDS = {
    Kind.ASKED: "asked",
    Kind.ANSWER: "answered",
    Kind.DOUBT: "in doubt",
    Kind.VOIDED: "proved not done",
    Kind.SALVAGED: "salvaged",
    Kind.FORKED: "forked",
    Kind.SUPERSEDED: "retried",
    Kind.UNDOING: "undoing",
}
_VERDICTS = {DENIED: "denied", REWRITTEN: "rewritten"}
_RULES = 10
_read_request = body_reader(Request, "is no request")


def entries_of(run: RunRow, records: Sequence[Record]) -> Iterator[tuple[int, bytes]]:
    """Yield the entries for those records that are logged by themselves, with the records' numbers."""
    for record in records:
        facts = _facts_of(record)
        if facts is not None:
            kind, more = facts
            common = {"agent": run.agent, "run": run.id, "record": record.seq, "check": record.check.hex()}
            if record.step:
                common["step"] = record.step[:_TEXT]
            name = f"run/{run.id}/{record.seq}/{record.check.hex()[:16]}"
            yield record.seq, write_entry(record.at_ms, kind, name, {**common, **more})


def end_entry(run: RunRow, records: Sequence[Record], fault: str = "") -> bytes:
    """Return the entry for a run that has ended: its row, and the digest of all records that are stored."""
    facts: dict[str, object] = {
        "agent": run.agent,
        "created_ms": run.created_ms,
        "head": run.head.hex(),
        "length": run.length,
        "run": run.id,
        "since": run.length - len(records),
        "sha256": digest_of(records),
        "state": run.state.value,
    }
    if fault:
        facts["fault"] = fault[:_TEXT]
    if run.parent is not None:
        facts["parent"] = run.parent
    if run.labels:
        facts["labels"] = sha256(msgspec.json.encode(run.labels, order="sorted")).hexdigest()
    return write_entry(
        run.changed_ms, RUN_ENDED, f"run/{run.id}/end/{run.length}/{run.head.hex()[:16]}", facts
    )


def digest_of(records: Sequence[Record]) -> str:
    """Return the SHA-256 of records: each as a JSON array on a line of its own, bytes in hex."""
    made = sha256()
    for one in records:
        fields = [
            *(one.seq, one.kind.value, one.step, one.at_ms, one.body.hex()),
            *([blob.hex() for blob in one.blobs], one.check.hex()),
            *(one.step_kind.value if one.step_kind is not None else None, one.epoch, one.took_ms),
        ]
        made.update(msgspec.json.encode(fields) + b"\n")
    return made.hexdigest()


def _facts_of(record: Record) -> tuple[str, dict[str, object]] | None:
    kind = _KINDS.get(record.kind)
    if kind is None:
        return _judged(record)
    try:
        if record.kind is Kind.ANSWER:
            return kind, _answered(read_taken(record))
        if record.kind is Kind.ASKED:
            request = _read_request(record)
            return (kind if request.is_open else "withdrawn"), {
                "item": request.item,
                "of": request.kind.value,
            }
    except Corrupt as error:  # too large for a record: it is in a blob, or another version wrote it
        return kind, {"fault": error.what[:_TEXT]}
    return kind, {}


def _answered(taken: Taken) -> dict[str, object]:
    """Return the facts of an answer: whose, to what, and what it says."""
    facts: dict[str, object] = {
        "answered_ms": taken.at_ms,
        "by": taken.by,
        "item": taken.item,
        "of": taken.kind.value,
        "says": taken.answer.says.value,
    }
    if taken.answer.note:
        facts["note"] = taken.answer.note[:_TEXT]
    if taken.answer.value is not UNSET:
        facts["value"] = sha256(bytes(taken.answer.value)).hexdigest()
    return facts


def _judged(record: Record) -> tuple[str, dict[str, object]] | None:
    """Return the facts of a call that a policy denied or rewrote; None for every other record."""
    verdict = verdict_of(record)
    if verdict is None or verdict.v not in _VERDICTS:
        return None
    facts: dict[str, object] = {"policy": verdict.p, "rules": [one[:_TEXT] for one in verdict.r[:_RULES]]}
    if verdict.why:
        facts["why"] = verdict.why[:_TEXT]
    return _VERDICTS[verdict.v], facts
