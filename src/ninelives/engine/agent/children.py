"""Child runs: created once, awaited, cancelled with their parent.

A child's id is derived from the position of its spawn, and the child is created between two records of the
parent (INTENT, RESULT). If we die there, the next worker finds the intent and creates the same run again,
which changes nothing. The store refuses children of a run that has ended, cancels the children of a run that
fails or is cancelled, and sends news to a parent when a child ends.
A child's outcome is copied into the parent's journal, so that it is the same on replay, whatever happens to
the child later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context
from functools import cache
from hashlib import blake2b
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import (
    IdConflict,
    NotDone,
    RunCancelled,
    RunError,
    RunFailed,
    RunFinished,
    UnknownRun,
    UsageError,
)
from ninelives.core.governance.accounts import Settle
from ninelives.core.governance.taint import TaintChange, run_labels, without_taint
from ninelives.core.ids import MAX_CHARACTERS, check_id
from ninelives.core.journal.replay import read_body, write_body
from ninelives.core.model.run import (
    Control,
    Kind,
    NewRun,
    News,
    RunQuery,
    RunRow,
    State,
    StepKind,
)
from ninelives.core.model.totals import BUILTIN
from ninelives.core.values.codec import UNTYPED_CODEC, Codec, codec_for
from ninelives.core.values.exceptions import decode_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.sealing import inline_bytes
from ninelives.engine.context import StepPosition
from ninelives.engine.machine import machine
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import ready, wait, wait_until
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import AGENTS, Agent, Step, get_agent, make_step
from ninelives.engine.step import gate, judging, reservations
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.gate import GatedCall
from ninelives.engine.step.other_loops import at_home
from ninelives.engine.step.reservations import OpenReservations
from ninelives.store import Store

T = TypeVar("T")
STRANGER_MS = 1000
"""Poll interval for a run that is no child of the waiting run: the store sends no news of its end."""
MOST_CHILDREN = 1_000_000
_FINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)
_ID = codec_for(str)


class Child(Struct, frozen=True):
    """A handle to a child run. It can be recorded, passed to a later turn, and awaited there."""

    id: str
    agent: str

    @at_home
    async def result(self) -> Any:
        """Wait until the child has ended and return its result; the parent may park meanwhile.

        Raises RunFailed or RunCancelled if the child did; the outcome is recorded and the same on replay.
        """
        execution, codec = _outside_steps("child.result()"), self._codec
        async with Builtin(execution, f"result:{self.id}") as step:
            if (found := await step.recorded(codec)) is not None:
                return found.value
            await _may_begin(execution)
            row = await _end_of(execution, self.id)
            data, origins = await execution.call_store(_result, row)
            # What a child has read, its result may rest on, and so may its error.
            step.taint = TaintChange(origins) if origins else None
            if isinstance(data, RunError):
                # CRASH: the child has ended and that is not recorded; the next worker finds it ended.
                await step.raises(data)
            await step.returns(data)
            return await step.value(codec, data)

    @at_home
    async def cancel(self) -> None:
        """Request the cancellation of the child; does nothing if the child has ended."""
        execution = _outside_steps("child.cancel()")
        async with Builtin(execution, f"cancel:{self.id}") as step:
            if await step.recorded() is None:
                await _may_begin(execution)
                await execution.call_store(_cancel, self.id)
                await step.returns(b"null")

    @property
    def _codec(self) -> Codec:
        known = AGENTS.get(self.agent)
        return known.result if known is not None else UNTYPED_CODEC


@at_home
async def spawn(
    agent: Any, *args: Any, id: str | None = None, kwargs: Mapping[str, Any] | None = None
) -> Child:
    """Start a child run. It is durable when this returns, and starts once, whichever process dies.

    `agent` is a declared agent or its name; `*args` and `kwargs` are its arguments. Without `id`, the id is
    derived from the position of this call. The child inherits the parent's priority, labels and taint.
    Raises UnknownAgent, NotSerializable, BadName; IdConflict when the id belongs to another run.
    """
    execution = _outside_steps("nl.spawn()")
    declared, named = get_agent(agent), dict(kwargs or {})
    fingerprint = declared.fingerprint(args, named)
    agent_arguments.encode(declared, args, named)  # refused here, if they cannot be kept
    if id is not None:
        check_id(id, "run id")
    async with Builtin(execution, f"spawn:{declared.name}") as step:
        found = await step.recorded(_ID, fingerprint=fingerprint, is_effect=True, child=id)
        if found is not None:
            return Child(found.value, declared.name)
        name = _id(step.position, declared.name, id)
        gated = _gated(execution, step, declared, fingerprint, args, named)
        gated = await _opened(gated, _ID.encode(name))
        if not gate.is_as_admitted(gated):
            changed = NotDone("the run's code changed an argument while the spawn waited to begin")
            await step.raises(changed, _settled(gated, changed))
        body, made = agent_arguments.encode(declared, gated.args, gated.kwargs)
        # It waits until the intent is durable: no child exists that its parent's journal does not know.
        await _may_begin(execution)
        new = NewRun(
            id=name,
            agent=declared.name,
            fingerprint=declared.fingerprint(gated.args, gated.kwargs).digest,
            body=body,
            queue=declared.queue,
            pin=(execution.run.pin or machine()) if declared.is_pinned else None,
            priority=execution.run.priority,
            # What governs a tenant's runs by their label must not end at the first child.
            labels={**without_taint(execution.run.labels), **run_labels(execution.taint)},
            parent=execution.run.id,
        )
        return await _born(gated, step, new, list(made.values()))


@cache
def _stand_in(agent: Agent) -> Step:
    """Return a spawn of an agent as a step, which is what policies judge."""
    made = make_step(agent.function, name=agent.name, returns=Any)
    return replace(made, kind=StepKind.BUILTIN)


def _gated(
    execution: Execution,
    step: Builtin,
    agent: Agent,
    fingerprint: Fingerprint,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> GatedCall:
    return GatedCall(
        execution=execution,
        step=_stand_in(agent),
        fingerprint=fingerprint,
        position=step.position,
        args=args,
        kwargs=kwargs,
        key="",
        kind=judging.SPAWN,
    )


async def _opened(gated: GatedCall, child: bytes) -> GatedCall:
    """Return the spawn once it may begin and its intent is written, with the arguments that the child gets.

    A spawn that has begun is finished as it was permitted: the child may exist.
    """
    execution, step = gated.execution, gated.position.id
    begun, said = execution.replay.intents.get(step), None
    # Not if a retry has dropped it: that starts another child, which is judged as any.
    if begun is not None and execution.replay.counts(begun):
        said = read_body(begun).j
        changes = judging.decode(gated.step, said.args) if said is not None else {}
        return _changed(gated, *judging.with_changes(gated.step, gated.args, gated.kwargs, changes))
    if execution.governing.governor is not None:
        await ready(execution)
        permit = await gate.admit(gated)
        if permit.accounts:
            permit = await gate.reserve(gated, permit, child)
            return replace(_changed(gated, permit.args, permit.kwargs), admitted=permit.digest)
        gated, said = _changed(gated, permit.args, permit.kwargs), permit.judged
    # CRASH: the child may exist from here on. Changed code finds it by this intent.
    intent = write_body(gated.fingerprint, value=child, judged=said)
    execution.note(Kind.INTENT, step, intent, BUILTIN)
    return gated


def _changed(gated: GatedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GatedCall:
    return replace(gated, args=args, kwargs=kwargs)


async def _born(gated: GatedCall, step: Builtin, new: NewRun, contents: list[bytes]) -> Child:
    execution = gated.execution
    answer = await execution.component(ChildCreation).create(new, contents)
    if isinstance(answer, RunRow) and answer.parent != execution.run.id:
        answer = IdConflict(
            "a run of this id exists, and is no child of this one",
            run=new.id,
            remedy="Give the child another id, or none",
        )
    if isinstance(answer, UsageError):
        await step.raises(answer, _settled(gated, NotDone(answer.what)))
    # CRASH: the child exists and is not recorded; the next worker creates the same id and finds it.
    await step.returns(_ID.encode(new.id), _settled(gated, _ID.encode(new.id)))
    return Child(new.id, new.agent)


def _settled(gated: GatedCall, outcome: bytes | NotDone) -> tuple[Settle, ...]:
    reserves = OpenReservations.take(gated.execution, gated.position.id)
    if not reserves:
        return ()
    return reservations.settles(gated.execution, gated.step, gate.call_of(gated), reserves, outcome, None)


def _id(position: StepPosition, agent: str, given: str | None) -> str:
    """Return the id of the child spawned here: the same after a crash, a different one after a retry."""
    run, turn = position.execution.run.id, position.execution.turn
    if given is None:
        where = f"{turn}:{position.branch}"
        mark = f"-{blake2b(where.encode(), digest_size=4).hexdigest()}" if where != "0:" else ""
        given = f"{run}/{agent}{mark}-{position.number + 1}"
        if len(given) > MAX_CHARACTERS - 8:
            given = position.key()
    again = position.execution.replay.times_superseded(position.id)
    return f"{given}~{again + 1}" if again else given


def _outside_steps(what: str) -> Execution:
    return require_agent(what, "Call it in the agent, and pass the result on")


async def _may_begin(execution: Execution) -> None:
    """Wait until something new may begin that other runs will see."""
    await ready(execution)
    execution.tail.effect_length = execution.tail.length


# ----------------------------------------------------------------------------------------- creation


class ChildCreation:
    """Batches the spawns of one run: children requested at the same time are created in one transaction."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._waiting: list[tuple[NewRun, list[bytes], asyncio.Future[RunRow | UsageError]]] = []
        self._creating: asyncio.Task[None] | None = None

    async def create(self, new: NewRun, contents: list[bytes]) -> RunRow | UsageError:
        """Create a child; returns its row, or the error that says why there is none."""
        execution = self._execution
        born: asyncio.Future[RunRow | UsageError] = execution.loop.create_future()
        self._waiting.append((new, contents, born))
        execution.delivery.running.add(self)  # until they exist, the run is not at rest
        if self._creating is None:
            # A separate task: cancelling one branch must not cancel the spawns of other branches.
            # Kept: the event loop refers to its tasks only weakly.
            self._creating = asyncio.Task(self._create(), loop=execution.loop, context=Context())
        return await born

    async def _create(self) -> None:
        execution = self._execution
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                answers = await execution.call_store(_create, [(new, contents) for new, contents, _ in batch])
            except Exception as error:  # noqa: BLE001 (every waiting spawn gets the error)
                answers = [error if isinstance(error, UsageError) else UsageError(str(error)) for _ in batch]
            for (_, _, born), answer in zip(batch, answers, strict=True):
                if not born.done():
                    born.set_result(answer)
        self._creating = None
        execution.delivery.running.discard(self)
        execution.delivery.check_soon()


def _create(store: Store, batch: list[tuple[NewRun, list[bytes]]]) -> list[RunRow | UsageError]:
    return store.create_runs([_stored(store, new, contents) for new, contents in batch])


def _stored(store: Store, new: NewRun, contents: list[bytes]) -> NewRun:
    """Store as blobs what is too large for a record."""
    if len(new.body) > inline_bytes(store):
        contents, new = [new.body, *contents], replace(new, body=b"")
    return replace(new, blobs=tuple(store.put_blobs(contents))) if contents else new


# ---------------------------------------------------------------------------------------------- ends


class Ends:
    """The children of one run that have ended, read once for all branches that wait for them."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._ended: dict[str, RunRow] = {}
        self._seen = -1
        self._reading: asyncio.Future[None] | None = None

    async def of(self, child: str, news: int) -> RunRow | None:
        """Return a child's row if it has ended, read no earlier than the run's news number `news`."""
        while child not in self._ended and self._seen < news:
            if self._reading is None:  # not a branch of the run: it reads for all branches
                reading = self._read(news)
                self._reading = asyncio.Task(reading, loop=self._execution.loop, context=Context())
            # Shielded: the read serves other branches, too.
            await asyncio.shield(self._reading)
        return self._ended.get(child)

    async def _read(self, news: int) -> None:
        query = RunQuery(parent=self._execution.run.id, states=_FINAL, limit=MOST_CHILDREN)
        try:
            rows = await self._execution.call_store(lambda store: store.list_runs(query))
            self._ended = {row.id: row for row in rows}
            self._seen = news
        finally:
            self._reading = None


async def _end_of(execution: Execution, child: str) -> RunRow:
    """Wait until a run has ended. Raises UnknownRun."""
    row = await execution.call_store(_row, child)
    if row.state.is_final:
        return row
    if row.parent != execution.run.id:
        return await _end_of_stranger(execution, child)
    ends = execution.component(Ends)

    async def check(news: News) -> RunRow | None:
        return await ends.of(child, news.run.news)

    return await wait(execution, f"for the child {child!r}", check)


async def _end_of_stranger(execution: Execution, run: str) -> RunRow:
    """Poll until a run has ended that sends us no news: it is not our child.

    It is another run's child, or a child of the run that this one was forked from.
    """
    row = await execution.call_store(_row, run)
    while not row.state.is_final:
        await wait_until(execution, execution.store.now_ms() + STRANGER_MS, f"for the run {run!r}")
        row = await execution.call_store(_row, run)
    return row


def _row(store: Store, run: str) -> RunRow:
    row = store.read_run(run)
    if row is None:
        raise UnknownRun("there is no such run", run=run, remedy="Check the id; it may have been forgotten")
    return row


def _cancel(store: Store, run: str) -> None:
    with suppress(RunFinished):
        store.control_run(run, Control.CANCEL)


def _result(store: Store, row: RunRow) -> tuple[bytes | RunError, tuple[str, ...]]:
    """Return a run's encoded result, or its error, and where the data came from that it had read."""
    if row.state is State.CANCELLED:
        return RunCancelled("the child was cancelled", run=row.id), ()
    records = large_bodies.whole(store, store.load_journal(row.id, since=row.length - 1).records)
    if not records or records[-1].kind is not Kind.END:
        return RunFailed("the child has ended and its journal has been pruned", run=row.id), ()
    end = read_body(records[-1])
    if row.state is State.FAILED:
        cause = decode_error(bytes(end.e or b""))
        return RunFailed(f"the child failed: {type(cause).__name__}: {cause}", run=row.id), end.o
    return bytes(end.v or b"null"), end.o
