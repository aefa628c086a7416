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
from ninelives.core.journal.matching import differences
from ninelives.core.journal.replay import CARRIED, Undo, read_undo, step_name
from ninelives.core.model.run import Control, Journal, Kind, Record, RunQuery, State
from ninelives.core.secret import masked_text
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.agent.basics import NextTurn, log
from ninelives.engine.agent.resources import keep
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.context import BRANCH, Branch
from ninelives.engine.run import lookup
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.delivery import REFUSAL_SECONDS
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import RIVALS, STEPS, Agent, Step, find_step, make_agent
from ninelives.store import Store

BRANCH_NAME = "on_failure"
_LIVE = (State.PENDING, State.RUNNING, State.CHECKPOINTED, State.ESCALATED)
_MOST_CHILDREN = 1_000_000


class Undoing(Struct, frozen=True, omit_defaults=True):
    """The body of an UNDOING record: the state and error with which the run ends after the compensations."""

    state: State
    error: Raw | UnsetType = UNSET


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
    callee = _callee(step)
    body, _ = agent_arguments.encode(callee, args, kwargs, in_parts=False)
    position, replay = execution.next_position("on_failure"), execution.replay
    undos = [msgspec.json.encode(Undo(name, Raw(body))) for name in (step.name, *step.aliases)]
    if replay.undos and _is_registered(execution, position.id, undos, step, callee):
        # If this was the last unclaimed registration, those that waited for it repeat none, and are written.
        write_waiting(execution)
        return
    position.move_aside(replay.undo_ids)
    if not replay.registering and not _must_wait(execution):
        keep(execution, Kind.UNDO, position.id, undos[0])
        return
    # CRASH: not on record, and no effect has begun since; the next worker comes to this call again.
    replay.registering = (*replay.registering, (position.id, undos[0]))
    execution.on_loop(execution.component(Registrations).begin)


def _is_registered(
    execution: Execution, position: str, undos: list[bytes], step: Step, callee: Agent
) -> bool:
    """Claim the record of a registration: at this position, or of the same call at any other.

    Each record matches once. So changed code registers nothing twice, also under an earlier name of the
    action (`aliases`). Which of two equal calls finds a record does not matter: they register the same.
    Calls are the same if their fingerprints are, as for every step: a field or parameter with a default may
    have been added since.
    """
    unclaimed, names = execution.replay.undos, (step.name, *step.aliases)
    if unclaimed.get(position) in (*undos, void()):
        del unclaimed[position]
        return True
    known = [one for one in unclaimed if not one.startswith(CARRIED)]
    # Its own position first, so that unchanged code claims what it registered.
    known.sort(key=lambda one: one != position)
    found = next((one for one in known if unclaimed[one] in undos), None)
    taken = _fingerprint(read_undo(undos[0]), step, callee) if found is None and known else None
    if taken is not None:
        digests = execution.component(Registrations).digests
        for one in known:
            undo = read_undo(unclaimed[one])
            if undo.action not in names:
                continue
            if one not in digests:
                given = _fingerprint(undo, step, callee)
                digests[one] = given.digest if given is not None else None
            if digests[one] == taken.digest:
                found = one
                break
    if found is not None:
        del unclaimed[found]
    return found is not None


def _fingerprint(undo: Undo, step: Step, callee: Agent) -> Fingerprint | None:
    """Return the fingerprint of encoded arguments, as this code reads them; None if it cannot."""
    body = bytes(undo.arguments)
    if agent_arguments.has_parts(body):
        return None
    try:
        args, kwargs = agent_arguments.decode_action(callee, body, "", {})
        return step.fingerprint(args, kwargs)
    except Exception:  # noqa: BLE001 (an argument's own code; what cannot be read is another call)
        return None


class Registrations:
    """New registrations of an execution that wait (`Replay.registering`): a record that they may repeat is
    unclaimed.

    They are written once it is claimed. When the run's code is quiescent and a registration on record is
    still unclaimed, the run is stopped. An unclaimed effect alone does not stop it here: no effect starts
    before it is claimed, and the run may park and claim it later.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.digests: dict[str, bytes | None] = {}
        self._until: float | None = None

    def begin(self) -> None:
        """Consider the registrations when the run's code is quiescent, before it is parked."""
        delivery, self._until = self._execution.delivery, None
        if self._consider not in delivery.at_rest:
            # In front of the waits: a run that parks first would never be stopped for this.
            delivery.at_rest = (self._consider, *delivery.at_rest)
        delivery.check_soon()

    def _consider(self) -> None:
        execution = self._execution
        delivery = execution.delivery
        if not execution.replay.registering or execution.phase is not OPEN or execution.has_ended:
            return
        if write_waiting(execution):
            delivery.check_soon()  # effects waited for them
            return
        if lookup.passed_undo(execution) is None:
            return
        if delivery.has_reads or execution.has_bodies or execution.has_started_actions:
            return  # we are called again when they are over
        if delivery.has_foreign():
            now = execution.loop.time()
            self._until = self._until or now + REFUSAL_SECONDS
            if now < self._until:
                delivery.check_later()
                return
        if (error := repeated(execution)) is not None:
            execution.seal(error)


def _must_wait(execution: Execution) -> bool:
    """Return whether a new registration must wait: one on record, or a recorded effect, is unclaimed."""
    if not execution.is_resumed:
        return False
    return lookup.passed_undo(execution) is not None or lookup.passed_over(execution) is not None


def write_waiting(execution: Execution) -> bool:
    """Write the registrations that have waited, unless they must still wait; return whether any were."""
    waiting = execution.replay.registering
    if not waiting or execution.sealed is not None or _must_wait(execution):
        return False
    execution.replay.registering = ()
    for one in waiting:
        keep(execution, Kind.UNDO, *one)
    return True


def repeated(execution: Execution) -> Divergence | None:
    """Return the error for a new registration that may repeat one on record, if one waits for that."""
    passed, run = lookup.passed_undo(execution), execution.run.id
    if not execution.replay.registering or passed is None:
        return None
    step, old = passed
    new = read_undo(execution.replay.registering[0][1])
    shown = f"the code registers the compensation {new.action!r}, but {old.action!r}, which is registered, "
    renamed = f'If {new.action} is {old.action} renamed, declare it with aliases=["{old.action}"]; '
    if (declared := _declared(old.action)) is None:
        return Divergence(
            f"{shown}was not registered by this code, which does not declare it: both would be called",
            run=run,
            step=step,
            remedy=f"Nothing was executed. {renamed}else put the action back under its name",
        )
    before, after = (_preview(one) for one in (old, new))
    changed = "; ".join(differences(before, after)) if _declared(new.action) is declared else ""
    if changed:
        shown = f"the code registers the compensation {new.action!r} with other arguments ({changed}); "
        shown += "the one that is registered "
    return Divergence(
        f"{shown}was not registered by this code: both would be called",
        difference=changed,
        run=run,
        step=step,
        remedy=f"Nothing was executed. {'' if changed else renamed}"
        f'If the change is for later runs, write `if nl.patched("{new.action}"):` around the new one, '
        "with the old one under `else:`; if both are to be called, declare "
        f'@nl.agent(forgets=["{old.action}"]); else put the old registration back',
    )


def repeated_at_end(execution: Execution, ended: asyncio.Task[Any]) -> Divergence | None:
    """Return the error for a registration that still waits when the code has ended.

    None if the run completes, since nothing is undone then. A turn that ends is stopped for an unclaimed
    effect in any case (`lookup.left_in_turn`).
    """
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    if error is None and not isinstance(ended.result(), NextTurn):
        return None
    return repeated(execution) or (done_before(execution, error) if error is not None else None)


def done_before(execution: Execution, error: BaseException | None = None) -> Divergence | None:
    """Return the error for a new registration that may repeat a recorded effect, if one waits for that.

    The effect may be the very action that is registered now. `error` is what the code failed with.
    """
    waiting = [read_undo(body) for _, body in execution.replay.registering]
    missed = lookup.passed_over(execution) if waiting else None
    if missed is None:
        return None
    name = step_name(missed.step)
    new = next((one.action for one in waiting if one.action == name), waiting[0].action)
    fails = masked_text(f" and fails ({type(error).__name__}: {error})")[:300] if error is not None else ""
    renamed = f'If {name} was renamed, declare the step with aliases=["{name}"]; '
    return Divergence(
        f"the code registers the compensation {new!r}{fails}, but {lookup.not_called(missed)}",
        run=execution.run.id,
        step=missed.step,
        remedy=f"Nothing was executed. {renamed if lookup.is_unknown(name) else ''}"
        f"Put the call of {name} back; if the change is for later runs, write "
        f'`if nl.patched("{new}"):` around the registration, with the old code under `else:`; '
        f"if the code gives {name} up on purpose, and the compensation is to be called all the same, declare "
        f'@nl.agent(forgets=["{name}"])',
    )


def _preview(undo: Undo) -> dict[str, str]:
    step = _declared(undo.action)
    taken = _fingerprint(undo, step, _callee(step)) if step is not None else None
    return taken.preview() if taken is not None else {}


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
        found = [read_undo(record.body) for record in records if record.kind is Kind.UNDO]
    except msgspec.DecodeError as error:
        raise Corrupt(f"the record of a compensation cannot be read: {error}") from None
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
    at = max(index for index, record in enumerate(journal.records) if record.kind is Kind.UNDOING)
    undoing = _UNDOING(journal.records[at].body)
    pending = registered(journal.records[:at])
    return replace(journal, records=journal.records[at:]), undoing, pending


async def undo(execution: Execution, pending: list[Undo]) -> None:
    """Cancel the run's children and call its compensations; this is the code of a run's last stretch."""
    # Children first: they could act on what is about to be undone.
    await execution.call_store(_cancel_children, execution.run.id)
    # CRASH: cancelled, and nothing undone yet: the next worker requests it again, which changes nothing.
    await call_all(execution, pending)


async def call_all(execution: Execution, pending: list[Undo]) -> None:
    """Call the compensations, last registered first."""
    for number in reversed(range(len(pending))):
        # A branch by number: each keeps its ids on replay, whatever became of the others.
        token = BRANCH.set(Branch(f"{BRANCH_NAME}/{number}"))
        try:
            await _call(execution, pending[number])
        except Exception as error:  # noqa: BLE001 (it is recorded; the others must still run)
            log.error(
                f"the compensation {pending[number].action} failed, and what it should undo stands: {error}"
            )
        finally:
            BRANCH.reset(token)


async def _call(execution: Execution, one: Undo) -> None:
    try:
        step, args, kwargs = await read_call(execution, one)
    except Divergence as error:
        execution.seal(error)
        return await execution.forever()
    if step.is_async:
        await STEPS[step.name](*args, **kwargs)
    else:
        await asyncio.to_thread(STEPS[step.name], *args, **kwargs)
    return None


async def read_call(execution: Execution, one: Undo) -> tuple[Step, tuple[Any, ...], dict[str, Any]]:
    """Return the step that a registration names, and its arguments.

    Raises Divergence when this code cannot call it: it is not declared, its parameters are others, or the
    own code of an argument raises.
    """
    step = _found(one.action, execution.run.id)
    body, contents = bytes(one.arguments), dict[bytes, bytes]()
    if agent_arguments.has_parts(body):
        contents = await execution.call_store(agent_arguments.parts, body)
    args, kwargs = agent_arguments.decode_action(_callee(step), body, execution.run.id, contents)
    return step, args, kwargs


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
