"""What the journal of the current turn says, by the identity of steps.

A journal is read once per claim into a `Replay`. Code that runs again asks it for each step; what it
finds is what happened, and what it does not find has not happened yet. Order matters across branches:
outcomes carry their place in the journal, and the engine delivers them in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ninelives.core.errors import Corrupt, Divergence
from ninelives.core.fingerprint import Fingerprint
from ninelives.core.model import Kind, Record
from ninelives.core.origins import Passage, read_origin
from ninelives.core.output import read_output

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL})
_KEPT = frozenset({Kind.HELD, Kind.RELEASED, Kind.UNDO})


class StepBody(Struct, frozen=True, omit_defaults=True):
    """The body of a step's record: fingerprint and preview of its arguments, then its value or its error."""

    f: str = ""
    a: dict[str, str] = {}
    v: Raw | UnsetType = UNSET
    e: Raw | UnsetType = UNSET


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(StepBody).decode


class Superseded(Struct, frozen=True):
    """The body of a SUPERSEDED record: the steps whose outcomes so far no longer count."""

    steps: tuple[str, ...]


class Recorded(Struct, frozen=True):
    """An outcome that is in the journal."""

    seq: int
    kind: Kind
    step: str
    body: StepBody
    at_ms: int = 0


_DECODE_SUPERSEDED = msgspec.json.Decoder(Superseded).decode


class Replay:
    """The outcomes of a turn, by step; `left` counts those that nobody has taken yet.

    `kept` are the records that outlive the turn: what is held, and what is to be undone. With `is_undoing`
    the run's own code is over.
    """

    is_undoing = False
    passage: Passage | None = None
    kept: tuple[Record, ...] = ()
    _superseded: tuple[str, ...] = ()
    _superseded_at = -1
    _order: list[Recorded] | None = None
    _passed = 0

    def __init__(self, records: Sequence[Record]) -> None:
        self._outcomes: dict[str, Recorded] = {}
        self._lines: set[str] = set()
        self.intents: dict[str, Record] = {}
        self.answers: list[Record] = []
        self.emitted: dict[str, tuple[int, bool]] = {}
        self.doubts: dict[str, list[Record]] = {}
        for record in records:
            if record.kind in _OUTCOMES:
                self._outcomes[record.step] = Recorded(
                    record.seq, record.kind, record.step, read_body(record), record.at_ms
                )
                self.intents.pop(record.step, None)
                if self.doubts and record.kind is Kind.RESULT:
                    self.doubts.pop(record.step, None)
            elif record.kind is Kind.INTENT:
                self.intents[record.step] = record
            elif record.kind in (Kind.LOG, Kind.PROGRESS):
                self._lines.add(record.step)
            elif record.kind in (Kind.DOUBT, Kind.VOIDED):
                self.doubts.setdefault(record.step, []).append(record)
            elif record.kind in _KEPT:
                self._lines.add(record.step)
                self.kept = (*self.kept, record)
            elif record.kind is Kind.ANSWER:
                self.answers.append(record)
            elif record.kind is Kind.OUTPUT:
                self._read_output(record)
            elif record.kind is Kind.SUPERSEDED:
                self._supersede(records, record)
            elif record.kind is Kind.UNDOING:
                self.is_undoing = True
            elif record.kind is Kind.FORKED:
                self.passage = self.passage or Passage()
                self.passage.add(record.seq, read_origin(record), len(self._outcomes))
        self.began_ms = records[0].at_ms if records else 0
        self.left = len(self._outcomes)
        self.found = len(self._outcomes)

    def _read_output(self, record: Record) -> None:
        """Note what a step has emitted: the attempt, and whether it still stands."""
        body = read_output(record)
        if body.a:
            self.emitted[record.step] = (body.a, not body.r)
        else:
            self._lines.add(record.step)

    def _supersede(self, records: Sequence[Record], superseding: Record) -> None:
        """Forget outcomes that no longer count; that their steps were started is as true as before."""
        steps = set(read_superseded(superseding))
        for step in steps:
            self._outcomes.pop(step, None)
        self._superseded, self._superseded_at = (*self._superseded, *steps), superseding.seq
        for record in records:
            if record.seq < superseding.seq and record.kind is Kind.INTENT and record.step in steps:
                self.intents[record.step] = record

    def take(self, step: str, aliases: Iterable[str] = ()) -> Recorded | None:
        """Return what is recorded for a step under its name, or under one that it had; once."""
        for name in (step, *aliases):
            found = self._outcomes.pop(name, None)
            if found is not None:
                self.left -= 1
                if self.passage is not None:
                    self.passage.take(found.seq)
                return found
        return None

    def earliest(self) -> Recorded | None:
        """Return the first outcome that nobody has taken, or been found not to take (`pass_by`)."""
        if self._order is None:
            self._order = sorted(self._outcomes.values(), key=lambda one: one.seq)
        while self._passed < len(self._order) and self._order[self._passed].step not in self._outcomes:
            self._passed += 1
        return self._order[self._passed] if self._passed < len(self._order) else None

    def pass_by(self) -> None:
        """Give up waiting for the earliest: the code does not ask for it any more."""
        self._passed += 1

    def counts(self, intent: Record) -> bool:
        """Tell whether what an intent says still counts: its step was not given another chance since."""
        return intent.seq > self._superseded_at or intent.step not in self._superseded

    def is_current(self, record: Record) -> bool:
        """Tell whether a record is the outcome of its step that counts, and was not taken yet."""
        found = self._outcomes.get(record.step)
        return found is not None and found.seq == record.seq

    def times_superseded(self, step: str) -> int:
        """Return how often a step's outcome was superseded."""
        return self._superseded.count(step)

    def starts(self, step: str) -> list[Record]:
        """Return what is recorded of the starts of a step: the last without an outcome, and doubts."""
        intent = self.intents.get(step)
        known = [*([intent] if intent is not None else ()), *self.doubts.get(step, ())]
        return sorted(known, key=lambda record: record.seq)

    def knows_line(self, step: str) -> bool:
        """Tell whether a line for people, or an item of the agent's own output, was recorded before."""
        return step in self._lines


def read_body(record: Record) -> StepBody:
    """Return the body of a step's record. Raises Corrupt."""
    try:
        return _DECODE(record.body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"record {record.seq} is no step's record: {error}",
            step=record.step,
            remedy="It was written by another version, or by hand",
        ) from None


def read_superseded(record: Record) -> tuple[str, ...]:
    """Return the steps that a record supersedes. Raises Corrupt."""
    try:
        return _DECODE_SUPERSEDED(record.body).steps
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {record.seq} does not say what it supersedes: {error}") from None


def write_superseded(steps: Sequence[str]) -> bytes:
    """Return the body of a SUPERSEDED record."""
    return _ENCODE(Superseded(tuple(steps)))


def write_body(
    fingerprint: Fingerprint | None, *, value: bytes | None = None, error: bytes | None = None
) -> bytes:
    """Return the body of a step's record."""
    if fingerprint is not None and value is not None:  # the hot path: as the encoder would, without a copy
        shown = _ENCODE(fingerprint.preview())
        given = b',"a":%b' % shown if len(shown) > 2 else b""
        return b'{"f":"%b"%b,"v":%b}' % (fingerprint.digest.hex().encode(), given, value)
    return _ENCODE(
        StepBody(
            f=fingerprint.digest.hex() if fingerprint else "",
            a=fingerprint.preview() if fingerprint else {},
            v=Raw(value) if value is not None else UNSET,
            e=Raw(error) if error is not None else UNSET,
        )
    )


def check_arguments(recorded: Recorded, asked: Fingerprint, *, run: str, where: Callable[[], str]) -> None:
    """Check that a step is asked for with the arguments that were recorded.

    Raises Divergence naming what was recorded, what was asked, and where in the code.
    """
    if recorded.body.f == asked.digest.hex():
        return
    differences = "; ".join(_differences(recorded.body.a, asked.preview()))
    raise Divergence(
        f"the code at {where()} asks for this step with other arguments than were recorded: {differences}",
        run=run,
        step=recorded.step,
        remedy="Nothing was executed. Put the code back, name the argument in ignore= if it does not matter, "
        "or give the changed step another name so that it runs anew",
    )


def changed_start(start: StepBody, asked: Fingerprint, *, run: str, step: str, where: str) -> Divergence:
    """Return the error for a step that was started with other arguments than it is asked for with."""
    differences = "; ".join(_differences(start.a, asked.preview()))
    return Divergence(
        f"the code at {where} asks for this step with other arguments than it was started with, "
        f"and it is not known what came of that: {differences}",
        run=run,
        step=step,
        remedy="Nothing was executed. Put the code back so that it asks as before, or name the argument in "
        "ignore= if it does not matter",
    )


def _differences(recorded: Mapping[str, str], asked: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(recorded.keys() | asked.keys()):
        before, after = recorded.get(name, "(default)"), asked.get(name, "(default)")
        if before != after:
            yield f"{name}: {before} → {after}"
    if dict(recorded) == dict(asked):
        yield "they differ beyond what is shown"
