"""What a policy is asked about a call, and what its answer means for the call's arguments.

Everything here uses the CPU only and writes nothing; `step.gate` waits and records. What raises while a call
is judged becomes a PolicyFailed, which stops the run for a person: an error never allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from inspect import Parameter
from typing import Any, Final, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.clock import moment
from ninelives.core.errors import Denied, NineLivesError, PolicyFailed, UsageError
from ninelives.core.governance.accounts import Reserve
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.core.model.run import StepKind
from ninelives.core.secret import masked_text
from ninelives.core.values.codec import codec_for
from ninelives.engine.context import FRAME
from ninelives.engine.governor import Governor, Hold
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import Step, annotated
from ninelives.engine.step.reservations import ended
from ninelives.store import Store

T = TypeVar("T")
COMPENSATION, SPAWN = "compensation", "spawn"
_VERDICTS: Final = (Allow, Deny, Ask, Rewrite)
_DEEPEST = 1_000
"""How many ancestors of a run are counted at most."""
_REMEDY = "Nothing was done. Correct the policy, then retry the run; or let it fail"


class RunAncestry:
    """How many ancestors the run of an execution has, and the first of them; read once, for a child.

    `root` is empty while it is unknown, and if an ancestor has been forgotten.
    """

    def __init__(self, execution: Execution) -> None:
        is_root = execution.run.parent is None
        self.depth: int | None = 0 if is_root else None
        self.root = execution.run.id if is_root else ""


def is_depth_known(execution: Execution) -> bool:
    """Return whether `depth_of` would not wait."""
    return execution.component(RunAncestry).depth is not None


async def depth_of(execution: Execution) -> int:
    """Return how many ancestors a run has."""
    known = execution.component(RunAncestry)
    if known.depth is not None:
        return known.depth
    depth, known.root = await execution.call_store(_ancestry, execution.run.parent)
    known.depth = depth
    return depth


def _ancestry(store: Store, parent: str | None) -> tuple[int, str]:
    depth, root = 0, ""
    while parent is not None and depth < _DEEPEST:
        row = store.read_run(parent)
        root = parent if row is not None and row.parent is None else ""
        parent, depth = (row.parent if row is not None else None), depth + 1
    return depth, root


def call_of(
    execution: Execution,
    step: Step,
    at: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str,
    kind: str = "",
) -> Call:
    """Return a call as a policy sees it. The run's depth must be known (`depth_of`), else it is 1."""
    run, effect = execution.run, step.effect
    known = execution.component(RunAncestry)
    return Call(
        action=step.name,
        kind=kind or (COMPENSATION if execution.is_undoing else step.kind._value_),
        args=arguments(step, args, kwargs),
        run=run.id,
        agent=run.agent,
        step=at,
        key=key,
        resumable=effect is None or effect.resumable,
        reads_only=step.reads_only and step.kind is not StepKind.DECISION,
        labels=run.labels,
        parent=run.parent,
        depth=1 if known.depth is None else known.depth,
        root=known.root,
        turn=execution.turn,
        taint=execution.taint,
        now=_moment(execution.store.now_ms()),
    )


@lru_cache(maxsize=8)
def _moment(ms: int) -> datetime:
    return moment(ms)


def arguments(step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name, with defaults; without the object of a method."""
    names = step.by_position
    if names is not None and not kwargs and len(args) == len(names):  # the hot path: all, in order
        found, first = dict(zip(names, args, strict=True)), names[0] if args else ""
    else:
        bound = step.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        found = dict(bound.arguments)
        first = next(iter(found), "")
    if first in ("self", "cls"):
        del found[first]
    return found


def held(governor: Governor, step: Step, call: Call) -> Hold | None:
    """Return why a call must wait now, if it must. Raises PolicyFailed."""
    try:
        return governor.held(step, call)
    except Exception as error:
        raise raised("held", call, error) from error


def judge(governor: Governor, step: Step, call: Call) -> Judgement:
    """Return the policy's judgement. Raises PolicyFailed when a rule failed, or for what is no judgement."""
    try:
        found = governor.judge(step, call)
    except Exception as error:
        raise raised("judge", call, error) from error
    if type(found) is not Judgement or type(found.verdict) not in _VERDICTS:
        raise failed(call, f"it returned {found!r}, which is no judgement")
    if found.error:
        raise failed(call, found.error)
    if type(found.verdict) is Ask and found.verdict.approvals < 1:
        raise failed(call, f"it asks {found.verdict.approvals} people")
    return found


def reserves(governor: Governor, step: Step, call: Call) -> tuple[Reserve, ...]:
    """Return what a call reserves. Raises PolicyFailed."""
    try:
        return governor.reserves(step, call)
    except Exception as error:
        raise raised("reserves", call, error) from error


def ask(what: str, call: Call, question: Callable[[], T]) -> T:
    """Ask the governor something about a call. Raises PolicyFailed when that raises."""
    try:
        return question()
    except Exception as error:
        raise raised(what, call, error) from error


def raised(what: str, call: Call, error: Exception) -> PolicyFailed:
    """Return the error for a question about a call that raised."""
    said = f": {error}" if isinstance(error, NineLivesError) else f" raised {type(error).__name__}: {error}"
    return failed(call, f"{what}{said}")


def failed(call: Call, why: str) -> PolicyFailed:
    """Return the error for a call that cannot be judged."""
    return PolicyFailed(
        f"the call of {call.action} could not be judged: {why}"[:1000],
        run=call.run,
        step=call.step,
        remedy=_REMEDY,
    )


def key_of(step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return the business key of a call with these arguments, if the step has one."""
    effect = step.effect
    return effect.key(args, kwargs) if effect is not None and effect.key is not None else None


# Rewritten arguments ------------------------------------------------------------------------------


def encode(step: Step, call: Call, changes: Mapping[str, Any]) -> dict[str, bytes]:
    """Encode the values that a policy puts in place of arguments, each as its parameter is annotated.

    Raises PolicyFailed for a name that is no parameter, and for a value that does not fit.
    """
    plain = [
        name
        for name in call.args
        if step.signature.parameters[name].kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    unknown = [name for name in changes if name not in plain]
    if unknown:
        known = ", ".join(plain) or "none"
        raise failed(call, f"it rewrites {unknown[0]!r}, which is no argument; there are: {known}")
    try:
        encoded = {name: _codec(step, name).encode(value) for name, value in changes.items()}
        decode(step, encoded)
    except NineLivesError as error:
        raise failed(call, f"it rewrites an argument to a value that does not fit: {error}") from error
    return encoded


def decode(step: Step, encoded: Mapping[str, bytes | Raw]) -> dict[str, Any]:
    """Return rewritten values as the body gets them, on first execution and on replay. Raises Divergence."""
    return {name: _codec(step, name).decode(bytes(data)) for name, data in encoded.items()}


def with_changes(
    step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments with some values replaced."""
    bound = step.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    for name, value in changes.items():
        bound.arguments[name] = value
    return bound.args, bound.kwargs


def _codec(step: Step, name: str) -> Any:
    return codec_for(annotated(step.signature.parameters[name].annotation), where=f"{step.name}({name})")


# Calls that are not recorded ----------------------------------------------------------------------


def require_allowed(
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str
) -> None:
    """Refuse a call that writes no record of its own, unless it is allowed as it is and nothing holds it.

    Such are steps inside the body of another step, and undecorated ones (`.raw`). `what` says which.
    Raises Denied, UsageError, PolicyFailed.
    """
    governor, frame = execution.governor, FRAME.get()
    if governor is None:
        return
    at = frame.position.id if frame is not None else ""
    call = call_of(execution, step, at, args, kwargs, key="")
    if step.effect is not None and step.effect.key is not None:
        call = replace(call, key=ask("key=", call, lambda: key_of(step, args, kwargs)) or "")
    if frame is not None and frame.taint is not None:  # what this body has read is on no record yet
        call = replace(call, taint=call.taint.union(frame.taint.adds))
    hold = held(governor, step, call)
    if hold is not None and hold.is_brief:
        hold = None
    why = f"it would have to wait {hold.what}" if hold is not None else ""
    if hold is None and governor.has_policy:
        verdict = judge(governor, step, call).verdict
        if isinstance(verdict, Allow):
            return
        if isinstance(verdict, Deny):
            denied = Denied(
                f"the policy denies {step.name}: {masked_text(verdict.why)}",
                run=execution.run.id,
                step=at or None,
            )
            ended(execution, step, call, denied)  # on no record, and counted by trips all the same
            raise denied
        why = "a person must approve it" if isinstance(verdict, Ask) else "its arguments must be rewritten"
    if why:
        raise UsageError(
            f"{step.name} is called {what}, and {why}",
            run=execution.run.id,
            step=at or None,
            remedy=f"Call {step.name} from the agent, as a step: there it can wait and is recorded",
        )
