"""The rows of `ps` and the page of `show`. Field names are stable: programs read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, structs

from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.journal.replay import read_body
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.run import Journal, Kind, Record, RunQuery, RunRow, State
from ninelives.core.model.totals import Retrying, read_retrying
from ninelives.core.rules import deaths as lives
from ninelives.core.step_ids import step_text
from ninelives.engine.commit import large_bodies
from ninelives.store import Store
from ninelives.views import records_text, sessions
from ninelives.views.checkpoint import (
    Operation,
    Resource,
    StartedAction,
    effects_in,
    operations_in,
    resources_in,
    salvaged_in,
    steps_in,
    wake_up_of,
)
from ninelives.views.masking import masked_journal
from ninelives.views.records_text import Failed, Progress
from ninelives.views.recoveries import last_recovery, last_stacks
from ninelives.views.sessions import SeenSession


class Summary(Struct, frozen=True, kw_only=True):
    """A run in one line. `fault` says why its journal could not be read, and is empty if it could.

    `error` says why a run failed, or why it retries; empty otherwise.

    `is_loaded`: a live worker has loaded its agent; `is_starting`: a live supervisor has no worker ready yet.
    """

    id: str
    number: int
    agent: str
    status: State
    paused: bool
    cancelling: bool
    turn: int
    steps: int | None
    progress: Progress | None
    tokens_in: int
    tokens_out: int
    retrying: Retrying | None
    waits: str
    is_loaded: bool
    is_starting: bool
    session: SeenSession | None
    next_wake_up: datetime | None
    deaths: int
    labels: dict[str, str]
    parent: str | None
    created: datetime
    updated: datetime
    fault: str
    error: str


class Waiting(Struct, frozen=True, kw_only=True):
    """An open inbox item."""

    id: str
    kind: str
    step: str
    to: str
    opened: datetime
    deadline: datetime | None
    body: Any


class Unread(Struct, frozen=True, kw_only=True):
    """A signal that the run has not taken yet."""

    number: int
    name: str
    at: datetime


class Position(Summary, frozen=True, kw_only=True):
    """Everything about a run's position: the page of `show`."""

    queue: str
    priority: int
    epoch: int
    records: int
    head: str
    resources: list[Resource]
    pending: list[Operation]
    effects: list[StartedAction]
    in_doubt: list[Operation]
    salvaged: str
    last_recovery: str
    last_stacks: tuple[str, ...]
    last_error: Failed | None
    inbox: list[Waiting]
    signals: list[Unread]
    result: Raw | None


def summaries(store: Store, query: RunQuery) -> list[Summary]:
    """Return the runs that fit, newest first; a damaged one has its `fault` and hides no other."""
    living = sessions.seen(store)
    return [_summary(run, *_current(store, run), living) for run in store.list_runs(query)]


def position(store: Store, run: str) -> tuple[Position, tuple[Record, ...]]:
    """Return a run's position, and all its records that are still stored, with their bodies.

    Raises UnknownRun. For a damaged journal: only what the row says, and the fault.
    """
    living = sessions.seen(store)
    found = store.read_run(run)
    if found is None:
        raise unknown(run)
    fault = ""
    try:
        loaded = store.load_journal(run, since=0)
        loaded = masked_journal(structs.replace(loaded, records=large_bodies.whole(store, loaded.records)))
    except Corrupt as error:
        loaded, fault = Journal(found, found.length, (), (), ()), str(error)
    recovery = last_recovery(store, run), last_stacks(store, run)
    return _position(loaded, fault, living, recovery), loaded.records


def unknown(run: str) -> UnknownRun:
    """Return the error for an id that no run has."""
    return UnknownRun("there is no such run", run=run, remedy="ninelives ps --all lists all runs")


def _current(store: Store, run: RunRow) -> tuple[tuple[Record, ...], str]:
    try:
        return store.load_journal(run.id).records, ""
    except (Corrupt, UnknownRun) as error:
        return (), error.what


def _summary(
    run: RunRow, records: Sequence[Record], fault: str, living: Mapping[str, SeenSession]
) -> Summary:
    session = None if run.session is None else living.get(run.session) or sessions.ended(run.session)
    return Summary(
        id=run.id,
        number=run.number,
        agent=run.agent,
        status=run.state,
        paused=run.paused and not run.state.is_final,
        cancelling=run.cancelling,
        turn=run.turn,
        steps=None if fault else steps_in(records),
        progress=records_text.progress_of(run.progress.encode()) if run.progress else None,
        tokens_in=run.tokens_in,
        tokens_out=run.tokens_out,
        retrying=read_retrying(run.retrying),
        waits=run.waits or lives.waits_solo(run),
        is_loaded=run.agent in sessions.served(living),
        is_starting=sessions.is_any_starting(living),
        session=session,
        next_wake_up=wake_up_of(run),
        deaths=run.deaths,
        labels=run.labels,
        parent=run.parent,
        created=moment(run.created_ms),
        updated=moment(run.changed_ms),
        fault=fault,
        error=run.last_error if run.state is State.FAILED or run.retrying else "",
    )


def _position(
    loaded: Journal, fault: str, living: Mapping[str, SeenSession], recovery: tuple[str, tuple[str, ...]]
) -> Position:
    run = loaded.run
    turn = [record for record in loaded.records if record.seq >= run.turn_seq]
    summary = _summary(run, turn, fault, living)
    return Position(
        **structs.asdict(summary),
        queue=run.queue,
        priority=run.priority,
        epoch=run.epoch,
        records=run.length,
        head=run.head.hex(),
        resources=resources_in(turn),
        pending=operations_in(turn, Kind.INTENT),
        effects=effects_in(turn),
        in_doubt=operations_in(turn, Kind.DOUBT),
        salvaged=salvaged_in(turn),
        last_recovery=recovery[0],
        last_stacks=recovery[1],
        last_error=records_text.last_failure(turn),
        inbox=[_waiting(item) for item in loaded.items if item.state is ItemState.OPEN],
        signals=[_unread(signal) for signal in loaded.signals],
        result=_result(run, loaded.records),
    )


def _result(run: RunRow, records: Sequence[Record]) -> Raw | None:
    if run.state is not State.COMPLETED or not records or records[-1].kind is not Kind.END:
        return None
    value = read_body(records[-1]).v
    return value if isinstance(value, Raw) else Raw(b"null")


def _waiting(item: Item) -> Waiting:
    return Waiting(
        id=item.id,
        kind=item.kind.value,
        step=step_text(item.step),
        to=item.to,
        opened=moment(item.opened_ms),
        deadline=moment(item.deadline_ms) if item.deadline_ms is not None else None,
        body=records_text.readable(item.body),
    )


def _unread(signal: Signal) -> Unread:
    return Unread(number=signal.number, name=signal.name, at=moment(signal.at_ms))
