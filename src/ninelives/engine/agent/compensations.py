"""Compensations (`nl.on_failure`): called in reverse order when a run fails or is cancelled.

A registration is a record, durable before the next body starts. When the run fails or is cancelled, one
UNDOING record says so and the agent's code is not called again. A last stretch of the run follows, whose
steps are the compensations; they are recorded, retried and replayed like any other steps. If we die in it,
the next worker continues with the first compensation that has no outcome. A compensation that fails
permanently is recorded and logged, and the others continue; then the run ends as failed or cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, Divergence, UsageError
from ninelives.core.ids import step_id
from ninelives.core.journal.replay import CARRIED
from ninelives.core.model.run import Control, Journal, Kind, Record, RunQuery, State
from ninelives.engine.agent.basics import log
from ninelives.engine.agent.resources import keep
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.context import BRANCH, Branch
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import RIVALS, STEPS, Agent, Step, find_step, make_agent
from ninelives.store import Store

BRANCH_NAME = "on_failure"
_LIVE = (State.PENDING, State.RUNNING, State.CHECKPOINTED, State.ESCALATED)
_MOST_CHILDREN = 1_000_000


class Undo(Struct, frozen=True):
    """The body of an UNDO record. An empty action means that another run undoes it: see `worker.fork`."""

    action: str
    arguments: Raw = Raw(b"{}")


class Undoing(Struct, frozen=True, omit_defaults=True):
    """The body of an UNDOING record: the state and error with which the run ends after the compensations."""

    state: State
    error: Raw | UnsetType = UNSET


_UNDO = msgspec.json.Decoder(Undo).decode
_UNDOING = msgspec.json.Decoder(Undoing).decode


def on_failure(action: Any, *args: Any, **kwargs: Any) -> None:
    """Register a compensation: an action to call if the run fails or is cancelled, last registered first.

    The registration is durable before the next step starts, so it survives a crash. Register it before the
    step that it undoes; it must cope with a step that did not happen.
    Raises UsageError when `action` is not a declared action, or its name belongs to another step;
    NotSerializable when an argument cannot be recorded.
    """
    execution = require_agent("nl.on_failure()")
    step = getattr(action, "__ninelives__", None)
    if not isinstance(step, Step) or step.is_decision or find_step(step.name) is not step:
        raise UsageError(
            f"nl.on_failure() cannot call {getattr(action, '__name__', action)!r}",
            run=execution.run.id,
            remedy="Give an @nl.action of the module, with a name that no other step has: "
            "it is found by its name when the process that registered it is gone",
        )
    body, _ = agent_arguments.encode(_callee(step), args, kwargs, in_parts=False)
    place = execution.place("on_failure")
    undos = [msgspec.json.encode(Undo(name, Raw(body))) for name in (step.name, *step.aliases)]
    if _is_registered(execution, place.id, undos):
        return
    missing = _undeclared(execution)
    if missing is not None:
        error = _renamed(missing, step.name, execution.run.id)
        execution.on_loop(lambda: execution.seal(error))
        return
    place.move_aside(execution.replay.undo_ids)
    keep(execution, Kind.UNDO, place.id, undos[0])


def _is_registered(execution: Execution, place: str, undos: list[bytes]) -> bool:
    """Return whether this is registered already: at this position, or with the same content at any other.

    Each record matches once. So changed code registers nothing twice, also under an earlier name of the
    action (`aliases`). Which of two equal calls finds a record does not matter: they register the same.
    """
    unclaimed = execution.replay.undos
    if not unclaimed:
        return False
    if unclaimed.get(place) in (*undos, void()):
        del unclaimed[place]
        return True
    for known, body in unclaimed.items():
        if body in undos and not known.startswith(CARRIED):
            del unclaimed[known]
            return True
    return False


def _undeclared(execution: Execution) -> str | None:
    """Return a recorded compensation of this turn that no call claimed and this code does not declare."""
    for known, body in execution.replay.undos.items():
        action = _UNDO(body).action
        if action and not known.startswith(CARRIED) and _declared(action) is None:
            return action
    return None


def _renamed(old: str, new: str, run: str) -> Divergence:
    """Return the error for a registration that may repeat one whose action was renamed."""
    return Divergence(
        f"the code registers the compensation {new!r}, but {old!r}, which is registered, was not asked for "
        "and is not declared in this code: both would be called",
        run=run,
        remedy=f'Nothing was executed. If {new} is {old} renamed, declare it with aliases=["{old}"]; '
        "else put the action back under its name",
    )


def _declared(action: str) -> Step | None:
    """Return the step that has this name, or has it among its aliases."""
    found = find_step(action)
    if found is not None:
        return found
    steps = (getattr(one, "__ninelives__", None) for one in STEPS.values())
    return next((step for step in steps if isinstance(step, Step) and action in step.aliases), None)


def _callee(step: Step) -> Agent:
    """Return the step as an Agent, whose codecs encode its arguments."""
    return make_agent(step.function, step.name, "strict", "default", None)


def registered(records: tuple[Record, ...]) -> list[Undo]:
    """Return the registered compensations, in order of registration. Raises Corrupt."""
    try:
        found = [_UNDO(record.body) for record in records if record.kind is Kind.UNDO]
    except msgspec.DecodeError as error:
        raise Corrupt(f"a record does not say what is to be undone: {error}") from None
    return [undo for undo in found if undo.action]


def carried(execution: Execution) -> list[Draft]:
    """Return the records that carry registered compensations into the next turn."""
    pending = registered(execution.replay.kept)
    return [
        (Kind.UNDO, step_id(CARRIED, "on_failure", number), msgspec.json.encode(undo))
        for number, undo in enumerate(pending)
    ]


def void() -> bytes:
    """Return the body of an UNDO record that leaves the undoing to another run."""
    return msgspec.json.encode(Undo(""))


def write_undoing(state: State, error: bytes | None) -> bytes:
    """Return the body of an UNDOING record."""
    return msgspec.json.encode(Undoing(state, Raw(error) if error is not None else UNSET))


def last_stretch(journal: Journal) -> tuple[Journal, Undoing, list[Undo]]:
    """Return the journal from the UNDOING record on, that record's body, and the compensations to call."""
    at = max(place for place, record in enumerate(journal.records) if record.kind is Kind.UNDOING)
    undoing = _UNDOING(journal.records[at].body)
    pending = registered(journal.records[:at])
    return replace(journal, records=journal.records[at:]), undoing, pending


async def undo(execution: Execution, pending: list[Undo]) -> None:
    """Cancel the run's children and call its compensations; this is the code of a run's last stretch."""
    await execution.call_store(_cancel_children, execution.run.id)
    await call_all(execution, pending)


async def call_all(execution: Execution, pending: list[Undo]) -> None:
    """Call the compensations, last registered first."""
    for number in reversed(range(len(pending))):
        token = BRANCH.set(Branch(f"{BRANCH_NAME}/{number}"))
        try:
            await _call(execution, pending[number])
        except Exception as error:  # noqa: BLE001 (it is recorded; the others must still run)
            log.error(f"what was to be undone by {pending[number].action} is not: {error}")
        finally:
            BRANCH.reset(token)


async def _call(execution: Execution, one: Undo) -> None:
    try:
        step = _found(one.action, execution.run.id)
        body, contents = bytes(one.arguments), dict[bytes, bytes]()
        if agent_arguments.has_parts(body):
            contents = await execution.call_store(agent_arguments.parts, body)
        args, kwargs, _ = agent_arguments.decode(_callee(step), body, execution.run.id, contents)
    except Divergence as error:
        execution.seal(error)
        return await execution.forever()
    if step.is_async:
        await STEPS[step.name](*args, **kwargs)
    else:
        await asyncio.to_thread(STEPS[step.name], *args, **kwargs)
    return None


def _found(action: str, run: str) -> Step:
    step = _declared(action)
    if step is None:
        raise Divergence(
            f"the compensation {action!r} is not declared in this code",
            run=run,
            remedy=f'Put the action back under this name, or declare aliases=["{action}"] where it has '
            "another one now, then retry",
        )
    if action in RIVALS:
        error = RIVALS[action]
        raise Divergence(f"the compensation {action!r}: {error.what}", run=run, remedy=error.remedy)
    return step


def _cancel_children(store: Store, run: str) -> None:
    query = RunQuery(parent=run, states=_LIVE, limit=_MOST_CHILDREN)
    for child in store.list_runs(query):
        if not child.cancelling:
            store.control_run(child.id, Control.CANCEL)
