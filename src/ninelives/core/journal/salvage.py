"""Salvage: continue from the last good prefix of a damaged journal, if that forgets nothing that was done.

A run's row counts the records that some visible effect depends on (`effect_length`): those that were durable
when an action's body began, including the intent of a non-resumable action, those that took a signal or an
answer, and output. A damaged tail after these is only lost work: decisions and reads execute again, and an
action that had begun is repeated with the same arguments under the same key. Any other damage is left to a
person. See docs/decisions/0008.

What we cannot know: an action that had run for less than a few milliseconds when its process died has left no
trace, neither in the journal nor in the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal import chain
from ninelives.core.model.bodies import body_reader
from ninelives.core.model.run import Kind, Record, RunRow

_REMEDY = "Nothing of it was used; other runs continue. Restore the store from a backup, or end this run"


class Salvaged(Struct, frozen=True):
    """The body of a SALVAGED record: which records were lost, and why."""

    first: int
    length: int
    why: str

    def __str__(self) -> str:
        last = self.length - 1
        lost = f"record {self.first}" if self.first == last else f"records {self.first} to {last}"
        return f"{lost} could not be read ({self.why}); the run continued from the one before"


read_salvaged = body_reader(Salvaged, "is no record of salvage")


def salvaged(run: RunRow, records: Sequence[Record], why: str, now_ms: int) -> tuple[RunRow, Record] | None:
    """Return the row that continues after the good records, and the SALVAGED record; None if none is damaged.

    `records` are those from the run's base on, as far as they could be read. Raises Corrupt when salvaging
    would forget something that was done, or when nothing is left to continue from.
    """
    good, head = _good(run, records)
    if good == run.length and head == run.head:
        return None
    # The row, not the journal, says what was visible: the journal is what is damaged.
    if good < run.effect_length:
        raise _corrupt(run, good, f"{why}; a visible effect depends on it, and would be forgotten")
    turn, turn_seq = run.turn, run.turn_seq
    # The snapshot of this turn is the first damaged record:
    # continue from the turn before, if its own is there.
    if good <= turn_seq:
        starts = [one.seq for one in records if one.seq < good and one.kind in (Kind.CREATED, Kind.TURN)]
        if good < turn_seq or not starts:
            raise _corrupt(run, good, f"{why}; no snapshot is left to continue from")
        turn, turn_seq = turn - 1, starts[-1]
    body = msgspec.json.encode(Salvaged(good, run.length, why))
    (said,) = chain.seal(good, head, [(Kind.SALVAGED, "", now_ms, body, ())], run.epoch)
    after = replace(run, length=good + 1, head=said.check, turn=turn, turn_seq=turn_seq, changed_ms=now_ms)
    return after, said


def _good(run: RunRow, records: Sequence[Record]) -> tuple[int, bytes]:
    """Return the length and the head of the undamaged prefix of a journal."""
    head = run.base_check
    counted = records[: run.length - run.base]
    for seq, record in enumerate(counted, run.base):
        if record.seq != seq or not chain.follows(head, record):
            return seq, head
        head = record.check
    return run.base + len(counted), head


def _corrupt(run: RunRow, seq: int, what: str) -> Corrupt:
    error = Corrupt(f"the journal is damaged from record {seq} on: {what}", run=run.id, remedy=_REMEDY)
    error.seq = seq
    return error
