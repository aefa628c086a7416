"""Forks: a new run that starts with another run's records up to a step, and continues independently.

The prefix is copied when the fork is made, into a separate hash chain; after that the two runs are
independent. The original run's compensations stay with the original run. One transaction creates the fork: if
we die here, it exists whole or not at all, and forking again under the same id returns the same fork.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from ninelives.core.errors import BadName, NotSerializable, UsageError
from ninelives.core.governance.taint import run_labels
from ninelives.core.ids import check_id, parse_step_id
from ninelives.core.journal.fork_origin import Done, Origin, write_origin
from ninelives.core.journal.replay import Replay, read_body
from ninelives.core.journal.settlement import read_start, standing
from ninelives.core.model.run import Journal, Kind, NewRun, Record, RunRow
from ninelives.core.values.codec import UNTYPED_CODEC
from ninelives.engine.agent.compensations import void
from ninelives.engine.agent.declassify import carried_in
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.sealing import inline_bytes, writing_to
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import find_step
from ninelives.store import Store

AFTER = ("ask", "reuse", "repeat")
UNCHANGED: Any = object()
_OUTCOMES = frozenset({Kind.RESULT, Kind.FAILURE, Kind.WITHDRAWN, Kind.SIGNAL})
_COPIED = frozenset({Kind.LOG, Kind.PROGRESS, Kind.HELD, Kind.RELEASED, Kind.FORKED})


def fork(
    store: Store,
    run: str,
    at: str | int,
    result: Any = UNCHANGED,
    *,
    id: str | None = None,
    after: str = "ask",
) -> RunRow:
    """Create a run that starts with the records of another, up to a step of its current turn.

    `at` is a step's name, id or sequence number. `result` replaces that step's result; without it, the step
    runs again. `after` says what happens with non-resumable actions that the run has performed from there on:
    "ask" a person, "reuse" their results, or "repeat" them.
    Raises UnknownRun; UsageError when there is no such step, or an action of the run is in doubt;
    NotSerializable; IdConflict when the id belongs to another run.
    """
    if after not in AFTER:
        raise UsageError(f"after={after!r}", run=run, remedy=f"It is one of {', '.join(AFTER)}")
    name = check_id(id, "run id") if id is not None else f"{run[:200]}/fork-{secrets.token_hex(4)}"
    journal = large_bodies.load(store, run)
    replay = Replay(journal.records)
    target = _target(journal, replay, at)
    _refuse_doubts(journal, replay)
    prefix = [
        _copied(record)
        for record in journal.records[1:]
        if record.seq < target.seq and _counts(replay, record)
    ]
    if result is not UNCHANGED:
        prefix.append(_edited(store, run, target, result))
    origin = Origin(run, journal.run.turn, target.step, after, _done(journal, replay, target, result))
    # Last: it marks where the copied records end and the fork's own begin.
    prefix.append(Record(0, Kind.FORKED, "", target.at_ms, write_origin(origin)))
    # All that makes this fork this one: the same id with anything else is an IdConflict.
    parts = [run, journal.run.turn, target.step, after, [record.body for record in prefix[-2:]]]
    first = _stored(store, journal.records[0])
    used = agent_arguments.parts_of(journal.records[0].body, store.get_blobs)
    new = NewRun(
        id=name,
        agent=journal.run.agent,
        fingerprint=blake2b(msgspec.json.encode(parts), digest_size=16).digest(),
        body=first.body,
        blobs=(*first.blobs, *sorted(used - set(first.blobs))),
        queue=journal.run.queue,
        pin=journal.run.pin,
        priority=journal.run.priority,
        labels={**journal.run.labels, **run_labels(carried_in(journal.records))},
        prefix=tuple(_stored(store, record) for record in prefix),
    )
    (made,) = store.create_runs([new])
    if isinstance(made, UsageError):
        raise made
    return made


def _target(journal: Journal, replay: Replay, at: str | int) -> Record:
    """Return the outcome record of the step to fork at. Raises UsageError unless exactly one matches."""
    outcomes = [one for one in journal.records if one.kind in _OUTCOMES and replay.is_current(one)]
    found = [one for one in outcomes if at in (one.seq, one.step)] or _named(outcomes, str(at))
    if len(found) == 1:
        return found[0]
    steps = ", ".join(shown(one.step) for one in (found or outcomes)[-10:]) or "none yet"
    what = f"{len(found)} steps are {at!r}" if found else f"no step {at!r} has an outcome in the current turn"
    raise UsageError(what, run=journal.run.id, remedy=f"Name one of: {steps}")


def _named(outcomes: list[Record], at: str) -> list[Record]:
    found = []
    for record in outcomes:
        try:
            branch, name, number = parse_step_id(record.step)
        except BadName:
            continue
        if at in (name, f"{name}[{number}]", f"{branch}/{name}[{number}]"):
            found.append((branch, record))
    exact = [record for branch, record in found if shown(record.step) == at]
    return exact or [record for _, record in found]


def shown(step: str) -> str:
    """Return a step's id in its readable form: `branch/name[number]`."""
    try:
        branch, name, number = parse_step_id(step)
    except BadName:
        return step
    return f"{branch}/{name}[{number}]" if branch else f"{name}[{number}]"


def _started(journal: Journal) -> dict[str, list[Record]]:
    """Return the records of started non-resumable actions, by step.

    Uses only the journal: the process that forks need not have the agent's code.
    """
    found: dict[str, list[Record]] = {}
    for record in journal.records:
        is_start = record.kind is Kind.INTENT and read_start(record).l > 0
        if is_start or record.step in found:
            found.setdefault(record.step, []).append(record)
    return found


def _refuse_doubts(journal: Journal, replay: Replay) -> None:
    for step, records in _started(journal).items():
        kinds = (Kind.INTENT, Kind.DOUBT, Kind.VOIDED)
        is_over = any(record.kind in _OUTCOMES and replay.is_current(record) for record in records)
        if not is_over and not standing(one for one in records if one.kind in kinds).may_start:
            raise UsageError(
                f"{shown(step)} has started, and it is in doubt whether it happened",
                run=journal.run.id,
                step=step,
                remedy="Settle it first: a fork would not know whether to do it",
            )


def _counts(replay: Replay, record: Record) -> bool:
    if record.kind in _OUTCOMES:
        return replay.stands(record)
    return record.kind in _COPIED or record.kind is Kind.UNDO


def _copied(record: Record) -> Record:
    # Kept as a record, so that the fork's code finds its registration,
    # and void, so that it undoes nothing of the original run's.
    return replace(record, body=void()) if record.kind is Kind.UNDO else record


def _edited(store: Store, run: str, target: Record, result: Any) -> Record:
    """Return the outcome of a step with its result replaced."""
    step = find_step(parse_step_id(target.step).name)
    try:
        with writing_to(store):
            value = (step.codec if step is not None else UNTYPED_CODEC).round(result)[0]
    except NotSerializable as error:
        error.run, error.step = run, target.step
        raise
    body = replace(read_body(target), v=Raw(value), e=UNSET)
    made = msgspec.json.encode(body)
    return Record(0, Kind.RESULT, target.step, target.at_ms, made, step_kind=target.step_kind)


def _done(journal: Journal, replay: Replay, target: Record, result: Any) -> dict[str, Done]:
    """Return the non-resumable actions done after the fork point, which must not be repeated unasked."""
    found = {}
    for step, records in _started(journal).items():
        for record in records:
            # Without a new result the step itself runs again in
            # the fork, so it counts as done after the point.
            is_after = record.seq > target.seq or (record.seq == target.seq and result is UNCHANGED)
            if is_after and record.kind is Kind.RESULT and replay.stands(record):
                body = read_body(record)
                if body.v is not UNSET:
                    found[step] = Done(body.f, body.v, body.o)
    return found


def _stored(store: Store, record: Record) -> Record:
    """Store a body as a blob if it is too large for a record."""
    if len(record.body) <= inline_bytes(store):
        return record
    (digest,) = store.put_blobs([record.body])
    # CRASH: a blob that no run refers to; pruning removes it.
    rest = tuple(one for one in record.blobs if one != digest)
    return replace(record, body=b"", blobs=(digest, *rest))
