"""Replay: the recorded outcomes of the current turn, by step id.

Each claim reads the journal once into a `Replay`. The code runs again from the start of the turn and looks
up each step: a recorded outcome is reused, and a step without one has not finished yet. Order matters across
branches: outcomes keep their position in the journal, and the engine delivers them in that order
(docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ninelives.core.errors import BadName
from ninelives.core.governance.judged import Judged
from ninelives.core.governance.taint import DECLASSIFY, Taint, TaintChange
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.fork_origin import Passage, read_origin
from ninelives.core.journal.output import read_output
from ninelives.core.model.bodies import body_reader
from ninelives.core.model.run import Kind, Record, StepKind
from ninelives.core.model_calls.answered import Answered, CachedFrom
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.core.values.token_usage import Usage, usage_in

_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL})
_IDENTIFYING = _OUTCOMES | {Kind.INTENT, Kind.DOUBT, Kind.VOIDED}
_KEPT = frozenset({Kind.HELD, Kind.RELEASED, Kind.UNDO})
CARRIED = "^"
"""The branch of records that this turn got from the turn before."""
TIMEOUT = "timeout"
"""The built-in step of `nl.timeout`. RESULT: time ran out; WITHDRAWN: its block ended in time."""
SIGNAL_NUMBER = "signal number"
"""The name under which a record says which signal it took: no argument of a step can have this name."""


class Attempt(Struct, frozen=True):
    """A failed attempt: when it began, how long it took, and its error."""

    at_ms: int
    took_ms: int
    error: str


class StepBody(Struct, frozen=True, omit_defaults=True):
    """The body of a step's record: fingerprint and preview of its arguments, then its value or its error.

    `attempts` are those that failed before; `usage` is the cost that a model's answer reports. `r` is what
    the code received of a signal `v`, where its type has fields: the sender may have sent more. `j` is how a
    policy judged the call, in the first record that the step wrote. `o` is where the data came from, `x` what
    of that no longer counts (see `core.governance.taint`). `m` is how a model call was answered.
    """

    f: str = ""
    a: dict[str, str] = {}
    v: Raw | UnsetType = UNSET
    e: Raw | UnsetType = UNSET
    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    r: Raw | UnsetType = UNSET
    j: Judged | None = None
    o: tuple[str, ...] = ()
    x: tuple[str, ...] = ()
    m: Answered | None = None


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(StepBody).decode


def paid_tokens(body: StepBody) -> int:
    """Return the tokens that a recorded answer has cost the run: a cached one, none.

    Records of schema 1 report them in their value alone.
    """
    usage, is_cached = body.usage, body.m is not None and bool(body.m.cache)
    if usage is None and not is_cached and body.v is not UNSET:
        usage = usage_in(bytes(body.v))
    return usage.tokens if usage is not None else 0


class Superseded(Struct, frozen=True):
    """The body of a SUPERSEDED record: the steps whose outcomes so far no longer count."""

    steps: tuple[str, ...]


class Dropped(Struct, frozen=True):
    """A failure (or fired time limit, or cancellation) that a retry dropped, so that its step is done again.

    What was recorded between it (`seq`) and the retry (`until`) may be a reaction to it, unless it had begun
    before: `earlier` are such steps. `what` is the call that failed: its name and fingerprint, if it has one.
    `again` are the steps whose outcomes, once delivered, show that the run has gone on since the retry: what
    failed was done again, or a result that was cancelled before its delivery is delivered after all.
    """

    step: str
    what: tuple[str, str] | None
    seq: int
    until: int
    earlier: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()

    @property
    def is_kept(self) -> bool:
        """Whether only a cancellation was dropped: the result before it counts."""
        return self.seq == self.until

    def may_cause(self, found: Recorded) -> bool:
        """Return whether a record may be a reaction to this failure."""
        return self.seq < found.seq < self.until and found.step not in self.earlier


class Undo(Struct, frozen=True):
    """The body of an UNDO record. An empty action means that another run undoes it: see `worker.fork`."""

    action: str
    arguments: Raw = Raw(b"{}")


read_undo = msgspec.json.Decoder(Undo).decode


class Recorded(Struct, frozen=True):
    """An outcome in the journal."""

    seq: int
    kind: Kind
    step: str
    body: StepBody
    at_ms: int = 0
    step_kind: StepKind | None = None


read_body = body_reader(StepBody, "is not a step's record", "It was written by another version, or by hand")
_read_superseded = body_reader(Superseded, "does not say what it supersedes")


class Replay:
    """The outcomes of a turn, by step; `left` counts those that no call has taken yet.

    `ids` are the steps that were started or have an outcome: no other call may be recorded under them.

    `kept` are the records that outlive the turn: held resources and compensations. With `is_undoing` the
    agent's code has ended and only compensations run. `returned` are signals, by number, that a step took
    but did not deliver because it was cancelled: the next step that receives a signal takes them.

    `dropped` are the failures that retries of the run have dropped.

    `taint` is where the data came from that the turn's steps have read. `cached` are the cached answers that
    they got, if those were given to other wordings.

    `undos` are the registered compensations, by step, that no call has claimed. `registering` are those, by
    step, that the code registers meanwhile: effects wait until it is clear that they repeat none.
    """

    is_undoing = False
    passage: Passage | None = None
    kept: tuple[Record, ...] = ()
    registering: tuple[tuple[str, bytes], ...] = ()
    dropped: tuple[Dropped, ...] = ()
    _superseded: tuple[str, ...] = ()
    _superseded_at = -1
    _order: list[Recorded] | None = None
    _passed = 0

    def __init__(self, records: Sequence[Record]) -> None:
        self._outcomes: dict[str, Recorded] = {}
        self._lines: set[str] = set()
        # Starts too: a fresh call under the id of an open start would be taken for its retry.
        self.ids: set[str] = {record.step for record in records if record.kind in _IDENTIFYING}
        self.intents: dict[str, Record] = {}
        self.answers: list[Record] = []
        self.emitted: dict[str, tuple[int, bool]] = {}
        self.doubts: dict[str, list[Record]] = {}
        self.returned: dict[int, Recorded] = {}
        self._overtaken: dict[str, Recorded] = {}
        self.taint = Taint()
        self.cached: list[CachedFrom] = []
        for record in records:
            if record.kind in _OUTCOMES:
                self._read_outcome(record)
            elif record.kind is Kind.INTENT:
                self.intents[record.step] = record
            elif record.kind in (Kind.LOG, Kind.PROGRESS):
                self._lines.add(record.step)
            elif record.kind in (Kind.DOUBT, Kind.VOIDED):
                self.doubts.setdefault(record.step, []).append(record)
            elif record.kind in _KEPT:
                self._lines.add(record.step)
                self.kept = (*self.kept, record)
            elif record.kind in (Kind.ANSWER, Kind.ASKED):
                self._read_request(record)
            elif record.kind is Kind.OUTPUT:
                self._read_output(record)
            elif record.kind is Kind.SUPERSEDED:
                self._supersede(records, record)
            elif record.kind is Kind.UNDOING:
                self.is_undoing = True
            elif record.kind is Kind.FORKED:
                self.passage = self.passage or Passage()
                self.passage.add(record.seq, read_origin(record), len(self._outcomes))
        self.undos = {one.step: one.body for one in self.kept if one.kind is Kind.UNDO}
        self.undo_ids = set(self.undos)
        self.ids.update(step for step in self.undos if not step.startswith(CARRIED))
        # A superseded step executes again, under the id that it had.
        self.ids.difference_update(step for step in self._superseded if step not in self._outcomes)
        self.began_ms = records[0].at_ms if records else 0
        self.left = len(self._outcomes)
        if self.dropped:
            self.dropped = tuple(map(self._done_again, self.dropped))

    def _read_request(self, record: Record) -> None:
        """Keep an answer; of a request, only what it needs to be answered for what was there then."""
        if record.kind is Kind.ANSWER:
            self.answers.append(record)
        elif step_name(record.step) == DECLASSIFY:
            self.taint.requested.setdefault(record.step, dict(self.taint.counts))

    def _read_outcome(self, record: Record) -> None:
        """Add a step's outcome: the step is no longer running."""
        step, body = record.step, read_body(record)
        found = Recorded(record.seq, record.kind, step, body, record.at_ms, record.step_kind)
        if body.o or body.x:
            # Of every outcome, also those that a retry drops: what was read may have been acted on.
            self.taint.change(body.o, body.x)
        if body.m is not None:
            self.note_answered(body.m)
        if record.kind is Kind.WITHDRAWN and not self._withdraw(found):
            return
        if record.kind is Kind.RESULT:
            if self.returned:
                # A later receive has taken the signal that a cancelled one gave back.
                self.returned.pop(signal_number(found), None)
            if self.doubts:
                self.doubts.pop(step, None)
        self._outcomes[step] = found
        self.intents.pop(step, None)

    def note_answered(self, answered: Answered) -> None:
        """Keep where a cached answer came from that was given to another wording."""
        if answered.is_of_another_wording and answered.origin is not None:
            self.cached.append(answered.origin)

    def _withdraw(self, found: Recorded) -> bool:
        """Keep the outcome that a step had before it was withdrawn; False for a step of an earlier turn."""
        before = self._outcomes.get(found.step)
        is_carried = found.step.startswith(CARRIED)
        if before is not None:
            self._overtaken[found.step] = before
        # A signal that a cancelled receive had taken goes to
        # the next one, before those that wait (decision 16).
        gave = found if is_carried else before
        if gave is not None and (number := signal_number(gave)) >= 0:
            self.returned[number] = gave
        return not is_carried

    def _read_output(self, record: Record) -> None:
        """Keep which attempt of a step has emitted output, and whether that still stands."""
        body = read_output(record)
        if body.a:
            self.emitted[record.step] = (body.a, not body.r)
        else:
            self._lines.add(record.step)

    def _supersede(self, records: Sequence[Record], superseding: Record) -> None:
        """Drop outcomes that no longer count, but keep that their steps were started."""
        steps = set(read_superseded(superseding))
        dropped: list[Recorded] = []
        for step in steps:
            found = self._outcomes.pop(step, None)
            before = self._overtaken.pop(step, None)
            if before is not None and before.kind is Kind.RESULT and signal_number(before) < 0:
                # Only the withdrawal is superseded: the result before it counts, and is not done again.
                self._outcomes[step] = before
                until = superseding.seq
                self.dropped += (Dropped(step, None, until, until, again=frozenset({step})),)
            elif found is not None:
                dropped.append(found)
        self.dropped += _dropped(records, dropped, self._superseded_at, superseding.seq)
        self._superseded, self._superseded_at = (*self._superseded, *steps), superseding.seq
        unsettled = steps - self._outcomes.keys()
        for record in records:
            # The outcome no longer counts, but the step was started: its effect may have happened.
            if record.seq < superseding.seq and record.kind is Kind.INTENT and record.step in unsettled:
                self.intents[record.step] = record

    @property
    def last_dropped(self) -> list[Dropped]:
        """What the last retry dropped, of those that dropped anything."""
        last = max((one.until for one in self.dropped), default=0)
        return [one for one in self.dropped if one.until == last]

    def _done_again(self, one: Dropped) -> Dropped:
        """Add the steps under which a failed call was done again since the retry."""
        again = {
            found.step
            for found in self._outcomes.values()
            if found.seq > one.until
            # Steps without a fingerprint, such as waits, are known by their position only.
            and (found.step == one.step or (one.what is not None and _what(found) == one.what))
        }
        return msgspec.structs.replace(one, again=one.again.union(again))

    def take(self, step: str) -> Recorded | None:
        """Return a step's recorded outcome and count it as taken; None the second time."""
        found = self._outcomes.pop(step, None)
        if found is not None:
            self.left -= 1
            if self.passage is not None:
                self.passage.take(found.seq)
        return found

    def take_same(self, step: str, fingerprint: str) -> Recorded | None:
        """Take a step's recorded outcome if its arguments were the same: the usual case."""
        found = self._outcomes.get(step)
        return self.take(step) if found is not None and found.body.f == fingerprint else None

    def peek(self, step: str) -> Recorded | None:
        """Return a step's recorded outcome, if it was not taken yet."""
        return self._outcomes.get(step)

    def unclaimed(self) -> list[Recorded]:
        """Return the outcomes that no call has taken."""
        return list(self._outcomes.values())

    def earliest(self) -> Recorded | None:
        """Return the first outcome that is neither taken nor passed by (`pass_by`)."""
        if self._order is None:
            # Once, and only if a call needs it: most replays find every call at its own position.
            self._order = sorted(self._outcomes.values(), key=lambda one: one.seq)
        while self._passed < len(self._order) and self._order[self._passed].step not in self._outcomes:
            self._passed += 1
        return self._order[self._passed] if self._passed < len(self._order) else None

    def pass_by(self) -> None:
        """Skip the earliest outcome: the code no longer calls its step."""
        self._passed += 1

    def counts(self, intent: Record) -> bool:
        """Return whether an intent still counts: its step was not superseded after it."""
        return intent.seq > self._superseded_at or intent.step not in self._superseded

    def is_current(self, record: Record) -> bool:
        """Return whether a record is its step's current outcome, and not taken yet."""
        found = self._outcomes.get(record.step)
        return found is not None and found.seq == record.seq

    def stands(self, record: Record) -> bool:
        """Return whether a record is its step's outcome, even if the code withdrew the step after it."""
        before = self._overtaken.get(record.step)
        return self.is_current(record) or (before is not None and before.seq == record.seq)

    def times_superseded(self, step: str) -> int:
        """Return how many times a step's outcome was superseded."""
        return self._superseded.count(step)

    def starts(self, step: str) -> list[Record]:
        """Return the records of a step's starts: the last intent without an outcome, and doubts."""
        intent = self.intents.get(step)
        known = [*([intent] if intent is not None else ()), *self.doubts.get(step, ())]
        return sorted(known, key=lambda record: record.seq)

    def knows_line(self, step: str) -> bool:
        """Return whether a log line, progress, resource, or output outside steps was recorded before."""
        return step in self._lines


def _dropped(
    records: Sequence[Record], dropped: Sequence[Recorded], since: int, until: int
) -> tuple[Dropped, ...]:
    """Return what a retry (record `until`) dropped that the run's code may have reacted to.

    Not a child that is spawned again: it was no failure. Cancellations only if nothing else failed.
    """
    failed = [one for one in dropped if one.kind is Kind.FAILURE or step_name(one.step) == TIMEOUT]
    failed = failed or [one for one in dropped if one.kind is Kind.WITHDRAWN]
    starts = [(one.seq, one.step) for one in records if one.kind is Kind.INTENT and one.seq > since]
    return tuple(
        Dropped(
            one.step,
            _what(one),
            one.seq,
            until,
            frozenset(step for seq, step in starts if seq < one.seq),
        )
        for one in failed
    )


def _what(found: Recorded) -> tuple[str, str] | None:
    """Return the name and the fingerprint of a recorded call; None if it has no fingerprint."""
    return (step_name(found.step), found.body.f) if found.body.f else None


def read_step_body(data: bytes) -> StepBody:
    """Return a body that this process has just written: no Corrupt is possible."""
    return _DECODE(data)


def signal_number(found: Recorded) -> int:
    """Return the number of the signal that an outcome took; -1 when it took none, or has no number."""
    return int(found.body.a.get(SIGNAL_NUMBER, "-1"))


def signal_number_in(record: Record) -> int:
    """Return the number of the signal that a record took; -1 if its body does not say it."""
    try:
        return int(_DECODE(record.body).a.get(SIGNAL_NUMBER, "-1"))
    except (msgspec.DecodeError, ValueError):
        return -1


def write_signal(
    number: int, value: bytes, received: bytes | None = None, taint: Sequence[str] = ()
) -> bytes:
    """Return the body of a record that takes a signal, or passes one on to the next turn."""
    kept = UNSET if received is None else Raw(received)
    return _ENCODE(StepBody(a={SIGNAL_NUMBER: str(number)}, v=Raw(value), r=kept, o=tuple(taint)))


def read_superseded(record: Record) -> tuple[str, ...]:
    """Return the steps that a record supersedes. Raises Corrupt."""
    return _read_superseded(record).steps


def write_superseded(steps: Sequence[str]) -> bytes:
    """Return the body of a SUPERSEDED record."""
    return _ENCODE(Superseded(tuple(steps)))


def write_body(
    fingerprint: Fingerprint | None,
    *,
    value: bytes | None = None,
    error: bytes | None = None,
    attempts: Sequence[Attempt] = (),
    usage: Usage | None = None,
    shown: Mapping[str, str] | None = None,
    judged: Judged | None = None,
    taint: TaintChange | None = None,
    answered: Answered | None = None,
) -> bytes:
    """Return the body of a step's record; `shown` are the arguments of a step without a fingerprint."""
    is_plain = not attempts and usage is None and taint is None and answered is None
    if fingerprint is not None and value is not None and is_plain:
        # The hot path: the same bytes as the encoder's, without its copies.
        preview = _ENCODE(fingerprint.preview())
        given = b',"a":%b' % preview if len(preview) > 2 else b""
        said = b',"j":%b' % _ENCODE(judged) if judged is not None else b""
        return b'{"f":"%b"%b,"v":%b%b}' % (fingerprint.digest.hex().encode(), given, value, said)
    return _ENCODE(
        StepBody(
            f=fingerprint.digest.hex() if fingerprint else "",
            a=fingerprint.preview() if fingerprint else dict(shown or {}),
            v=Raw(value) if value is not None else UNSET,
            e=Raw(error) if error is not None else UNSET,
            attempts=tuple(attempts),
            usage=usage,
            j=judged,
            o=taint.adds if taint is not None else (),
            x=taint.removes if taint is not None else (),
            m=answered,
        )
    )


def step_name(step: str) -> str:
    """Return the name in a step's id; the id itself if it is none."""
    try:
        return parse_step_id(step).name
    except BadName:
        return step
