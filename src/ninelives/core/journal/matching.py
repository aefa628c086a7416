"""Match records with calls: by position, by `id=`, or by step name and arguments.

A call claims the outcome that belongs to it, or the start without an outcome; each is claimed once. The
engine decides when (`engine.run.identity`), this module decides what matches (see docs/decisions/0015).
Nothing is written: if we die here, the next replay finds the same records and claims them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from ninelives.core.errors import BadName, Divergence
from ninelives.core.ids import ID_MARK, beside, parse_step_id
from ninelives.core.journal.replay import Dropped, Recorded, Replay, StepBody, step_name
from ninelives.core.journal.settlement import read_start, standing
from ninelives.core.model.run import Kind, Record, StepKind
from ninelives.core.values.fingerprint import Fingerprint


class Start(Struct, frozen=True):
    """A start without an outcome. `is_open`: it may have taken effect; `is_protected`: it was non-resumable.

    A start that is not open was proved to have had no effect, has failed and may be retried, or is the time
    limit of a built-in step.
    """

    step: str
    seq: int
    at_ms: int
    body: StepBody
    key: str
    is_open: bool
    is_protected: bool
    step_kind: StepKind | None = None


class StepCall(Struct, frozen=True):
    """A call of a step: its possible positions in order of preference, its names, its fingerprint.

    `explicit_id` is the value of `id=`, if any, and `child` the id of the run that it starts.
    `is_effect`: it acts on the outside world. `shown` are the arguments of a sleep, which has no fingerprint.
    """

    positions: tuple[str, ...]
    names: tuple[str, ...]
    f: str
    explicit_id: str | None = None
    child: str | None = None
    is_effect: bool = False
    shown: dict[str, str] = {}


Claimed = Recorded | Start


class RecordClaims:
    """The records of one turn that no call has claimed yet."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._starts = {start.step: start for start in _starts_in(replay)}
        self.open = sum(start.is_open for start in self._starts.values())
        """How many open starts no call has claimed."""
        self.ids = replay.ids
        self.effects: dict[tuple[str, StepKind | None], bool] = {}
        """Cache: whether a step of this name and recorded kind is an effect."""
        self._by_what: dict[tuple[str, str], list[tuple[int, str]]] | None = None
        self._is_redone = False

    @property
    def has_starts(self) -> bool:
        """Whether a start, open or not, is unclaimed."""
        return bool(self._starts)

    def at(self, step: str) -> Claimed | None:
        """Return the unclaimed record at a position."""
        return self._replay.peek(step) or self._starts.get(step)

    def take(self, step: str) -> Claimed:
        """Claim the record at a position."""
        found = self._replay.take(step)
        if found is not None:
            return found
        start = self._starts.pop(step)
        self.open -= start.is_open
        return start

    def by_position(self, call: StepCall) -> Claimed | None:
        """Claim the record at one of the call's positions, if it has the same arguments.

        A closed start with other arguments is left alone if the call has a record elsewhere: a task that
        was created in another order stood here, and this call would be made a second time.
        """
        for position in call.positions:
            found = self.at(position)
            if found is not None and is_same_call(found, call):
                is_other = isinstance(found, Start) and found.body.f != call.f
                return None if is_other and self.earliest_match(call) is not None else self.take(position)
        return None

    def earliest_match(self, call: StepCall) -> tuple[int, str] | None:
        """Return number and position of the earliest unclaimed record that may be the call's, if any."""
        best: tuple[int, str] | None = None
        for candidates in self._candidates(call):
            while candidates and self.at(candidates[0][1]) is None:
                # Claimed since the index was made: dropped here,
                # so that a long turn is not searched again and again.
                candidates.pop(0)
            for one in candidates:
                found = self.at(one[1])
                if found is not None and may_be_of(found, call):
                    best = min(best, one) if best is not None else one
                    break
        return best

    def take_cancelled(self, call: StepCall) -> Claimed | None:
        """Claim the record of a cancelled step, for a call that is cancelled before it found its record.

        That is the earliest matching record of a withdrawn step, or start of a resumable step without an
        outcome.
        """
        found = [
            (at, step)
            for candidates in self._candidates(call)
            for at, step in candidates
            if (one := self.at(step)) is not None and _may_be_cancelled(one) and may_be_of(one, call)
        ]
        return self.take(min(found)[1]) if found else None

    def give_back(self, start: Start) -> None:
        """Return a start to the unclaimed: the call that claimed it was cancelled before it used it."""
        self._starts[start.step] = start
        self.open += start.is_open
        self._by_what = None

    def _candidates(self, call: StepCall) -> Iterator[list[tuple[int, str]]]:
        if self._by_what is None:
            self._index()
        for name in call.names:
            if self._by_what is not None and (found := self._by_what.get((name, call.f))):
                yield found

    def _index(self) -> None:
        """Index the unclaimed records by name and fingerprint, once, when a call first needs that."""
        self._by_what = {}
        for found in sorted(self.unclaimed(), key=lambda one: one.seq):
            try:
                name = parse_step_id(found.step).name
            except BadName:
                continue
            self._by_what.setdefault((name, found.body.f), []).append((found.seq, found.step))

    def unclaimed(self) -> list[Claimed]:
        """Return all unclaimed records: outcomes, then starts."""
        return [*self._replay.unclaimed(), *self._starts.values()]

    def passed_over(self, is_effect: Callable[[Claimed], bool]) -> Claimed | None:
        """Return the earliest unclaimed effect: its outcome, or a start that may have taken effect."""
        # Asked before every fresh effect: the usual answer must cost no walk over the journal.
        if not self._replay.left and not self.open:
            return None
        guarded = (one for one in self.unclaimed() if is_guarded(one) and is_effect(one))
        return min(guarded, key=lambda one: one.seq, default=None)

    # A retried run -------------------------------------------------------------------------------

    def is_redo(self, call: StepCall) -> bool:
        """Return whether a call does a step again that a retry superseded."""
        replay = self._replay
        return any(_is_redo(one, call) for one in replay.dropped) or any(
            # With a record, only its cancellation was superseded: other arguments are another call.
            replay.times_superseded(step) and replay.peek(step) is None
            for step in call.positions
        )

    def redo(self, call: StepCall) -> None:
        """Note that the body of a call starts now: perhaps it does again what had failed."""
        if any(_is_redo(one, call) for one in self._replay.last_dropped):
            self._is_redone = True

    def is_redone(self, branch: str | None = None) -> bool:
        """Return whether something that the last retry dropped was done again, or is under way.

        A result that is delivered after all leads only its own line of code further: a call on another
        branch that has records is not made because of it.
        """
        return self._is_redone or any(
            self._replay.peek(step) is None and not (one.is_kept and self._is_elsewhere(branch, step))
            for one in self._replay.last_dropped
            for step in one.again
        )

    def _is_elsewhere(self, branch: str | None, step: str) -> bool:
        if branch is None or branch not in {parse_step_id(one).branch for one in self.ids}:
            return False
        own = parse_step_id(step).branch + "/"
        return not own.startswith(branch + "/") and not branch.startswith(own)

    def may_react(self, found: Claimed) -> bool:
        """Return whether a record may be a reaction to a failure that a retry dropped.

        Not a start without an outcome: what came of it is not known.
        """
        return isinstance(found, Recorded) and any(one.may_cause(found) for one in self._replay.dropped)

    def open_starts(self) -> list[Start]:
        """Return the starts that may have taken effect and that no call has claimed."""
        return sorted((one for one in self._starts.values() if one.is_open), key=lambda one: one.seq)


def _is_redo(one: Dropped, call: StepCall) -> bool:
    is_same = one.what is not None and one.what[1] == call.f and one.what[0] in call.names
    return not one.is_kept and (is_same or one.step in call.positions)


def is_same_call(found: Claimed, call: StepCall) -> bool:
    """Return whether the record at a call's position has the same arguments.

    A start that failed or was proved to have had no effect matches any arguments: the retry uses the new
    ones. Old records of cancelled built-in steps have no fingerprint, and match too.
    """
    if isinstance(found, Start):
        return found.body.f == call.f or not found.is_open
    return found.body.f == call.f or (found.kind is Kind.WITHDRAWN and not found.body.f)


def may_be_of(found: Claimed, call: StepCall) -> bool:
    """Return whether a record at another position, of the same step and arguments, may be the call's.

    A record with another `id=` is not. Nor is a cancelled read: the call executes again, and whatever
    cancelled it then cancels it again.
    """
    if isinstance(found, Recorded) and found.kind is Kind.WITHDRAWN and not call.is_effect:
        return False
    if (
        call.child is not None
        and bytes(found.body.v or b"").partition(b"~")[0].strip(b'"') != call.child.encode()
    ):
        return False
    # At its own position a sleep may have got another length. Elsewhere it would be another sleep's record,
    # and a long one would end with a short one. Old records do not have the length.
    if call.shown and found.body.a and found.body.a != call.shown:
        return False
    branch = parse_step_id(found.step).branch
    return (
        call.explicit_id is None
        or not branch.startswith(ID_MARK)
        or beside(branch) == ID_MARK + call.explicit_id
    )


def _may_be_cancelled(found: Claimed) -> bool:
    """Return whether a record may belong to a call that the code cancelled."""
    if isinstance(found, Start):
        return found.is_open and not found.is_protected
    return found.kind is Kind.WITHDRAWN


def is_guarded(found: Claimed) -> bool:
    """Return whether an unclaimed record may have taken effect."""
    return not isinstance(found, Start) or found.is_open


def _starts_in(replay: Replay) -> Iterator[Start]:
    for step in {**replay.intents, **replay.doubts}:
        if replay.peek(step) is not None:
            continue  # it has an outcome
        records = replay.starts(step)
        yield _start(replay, step, records)


def _start(replay: Replay, step: str, records: list[Record]) -> Start:
    bodies = [read_start(record) for record in records]
    known = standing(records)
    is_protected = any(
        body.l > 0 or record.kind is Kind.DOUBT for record, body in zip(records, bodies, strict=True)
    )
    intent = replay.intents.get(step)
    # A retried run does the step again: its old start was superseded and is not open any more.
    is_spent = not is_protected and intent is not None and not replay.counts(intent)
    return Start(
        step=step,
        seq=records[0].seq,
        at_ms=records[0].at_ms,
        body=known.start or bodies[-1],
        key=(known.start or bodies[-1]).k,
        is_open=known.start is not None and not is_spent and bool(known.start.f),
        is_protected=is_protected,
        step_kind=records[0].step_kind,
    )


# Differences ---------------------------------------------------------------------------------------


def changed_arguments(recorded: Recorded, called: Fingerprint, *, run: str, where: str) -> Divergence:
    """Return the error for a step that is called with other arguments than were recorded."""
    name, difference = step_name(recorded.step), "; ".join(differences(recorded.body.a, called.preview()))
    return Divergence(
        f"the code at {where} calls this step with other arguments than were recorded: {difference}",
        where=where,
        difference=difference,
        run=run,
        step=recorded.step,
        remedy=f"Nothing was executed. {_ignored(recorded.body.a, called.preview())}; "
        f'if this call was inserted before the recorded one, write `if nl.patched("{name}"):` around it; '
        f'if the record can be dropped and the step done again, declare @nl.agent(forgets=["{name}"]); '
        "else restore the old code",
    )


def changed_start(start: StepBody, called: Fingerprint, *, run: str, step: str, where: str) -> Divergence:
    """Return the error for a step that was started with other arguments than it is called with now."""
    difference = "; ".join(differences(start.a, called.preview()))
    return Divergence(
        f"the code at {where} calls this step with other arguments than it was started with, "
        f"and the fate of that start is unknown: {difference}",
        where=where,
        difference=difference,
        run=run,
        step=step,
        remedy=f"Nothing was executed. {_ignored(start.a, called.preview())}; else restore the old code",
    )


def _ignored(recorded: Mapping[str, str], called: Mapping[str, str]) -> str:
    """Return a remedy about the arguments: what lets this same run continue, or why nothing does.

    The recorded fingerprint is fixed: `ignore=` takes an argument out of the new call, not out of the record.
    """
    changed = sorted(name for name in recorded if recorded[name] != called.get(name))
    added = sorted(called.keys() - recorded.keys())
    for old in changed:
        new = next((name for name in added if called[name] == recorded[old]), None)
        if old not in called and new is not None:
            return f"If you renamed the parameter {old} to {new}, name it {old} until this run has ended"
    if added and not changed:
        return f"If {' and '.join(added)} does not matter, declare the step with ignore={_names(added)}"
    which = f"ignore={_names(changed)}" if changed else "ignore="
    return f"If it does not matter, {which} helps runs that start later: this one has it on record"


def _names(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()


def differences(recorded: Mapping[str, str], called: Mapping[str, str]) -> Iterable[str]:
    """Yield how arguments differ, as far as their previews show it."""
    for name in sorted(recorded.keys() | called.keys()):
        before, after = recorded.get(name, "(default)"), called.get(name, "(default)")
        if before != after:
            yield f"{name}: {before} → {after}"
    if dict(recorded) == dict(called):
        yield "they differ beyond the previews"
