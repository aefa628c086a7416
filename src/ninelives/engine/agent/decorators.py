"""The decorators `agent`, `decision` and `action`. A decorated function keeps its signature.

Without a runtime in the process, decorated functions behave like ordinary functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from ninelives.core.errors import StaleResource
from ninelives.engine import hooks
from ninelives.engine.protected import non_resumable
from ninelives.engine.run.current import here
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.methods import Method, is_method
from ninelives.engine.spec.options import (
    ActionOptions,
    DecisionOptions,
    TransactionalOptions,
    refuse_options,
)
from ninelives.engine.spec.registry import (
    RIVALS,
    Step,
    add_agent,
    add_step,
    make_agent,
    make_step,
    refuse_rival,
)
from ninelives.engine.step import approval, judging, model_call, threads
from ninelives.engine.step import resumable as steps

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")


class Declared(Protocol, Generic[P, R_co]):
    """A declared function: called like the original; `raw` calls it without recording or protection."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function; a step that is called inside a run is recorded."""

    @property
    def raw(self) -> Callable[P, R_co]:
        """The undecorated function; for a method accessed on an object, bound to that object."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(
        self: Declared[Concatenate[S, Q], T], instance: S, owner: type[Any] | None = None
    ) -> Declared[Q, T]: ...


@overload
def agent(function: Callable[P, R], /) -> Declared[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    durability: str = "strict",
    lives: int = 9,
    queue: str = "default",
    pin: str | None = None,
    on_stale: Callable[[StaleResource], Any] | None = None,
    timeout: float | None = None,
    forgets: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    durability: str = "strict",
    lives: int = 9,
    queue: str = "default",
    pin: str | None = None,
    on_stale: Callable[[StaleResource], Any] | None = None,
    timeout: float | None = None,
    forgets: Sequence[str] = (),
) -> Any:
    """Declare an agent: a function whose runs survive crashes.

    - `name`: the agent's name in the store; by default the function's qualified name.
    - `durability`: with "strict", a step returns once its outcome is durable. With "pipelined", decisions and
      reads return at once, and everything is durable before the next effect that the world can see.
    - `lives`: how many workers may die while executing only this run, without progress, before the run is
      quarantined and a person is asked.
    - `queue`: the queue of its runs; workers that have this agent loaded claim from it.
    - `pin="host"`: only the host that started a run executes it, because its files and branches are there.
    - `on_stale`: a plain or async handler. It is called with a StaleResource when a resource that the run
      holds is gone or changed on its return. If the handler returns, the run continues with the resource as
      it is now; if it raises the StaleResource, a person is asked; if it raises anything else, the run fails.
    - `timeout`: a run that has not ended this many seconds after its start fails with TimedOut, wherever it
      is.
    - `forgets`: names of steps whose recorded effects this code gives up on purpose. A run that has them on
      record continues although the code no longer calls them.
    """

    def declare(declared: Callable[..., Any]) -> Any:
        made = make_agent(declared, name, durability, queue, pin, on_stale, timeout, lives, forgets)
        add_agent(made)

        @functools.wraps(declared)
        def call(*args: Any, **kwargs: Any) -> Any:
            return declared(*args, **kwargs)

        call.__ninelives__ = made  # type: ignore[attr-defined]
        call.raw = declared  # type: ignore[attr-defined]
        return call

    return declare if function is None else declare(function)


@overload
def decision(function: Callable[P, R], /, **options: Unpack[DecisionOptions]) -> Declared[P, R]: ...
@overload
def decision(**options: Unpack[DecisionOptions]) -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def decision(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a decision: a step that asks a model. The answer is recorded and never requested again.

    - `name`: the step's name in the journal; by default the function's qualified name.
    - `retry`: when and how often a failed attempt is repeated; by default for about 6 hours, 58 attempts at
      most (see `nl.Retry`). `timeout`: seconds per attempt.
    - `breaker`: an `nl.Breaker`: when the step fails too often, its calls wait, in all workers.
    - `limit`: an `nl.Limit`: how many requests and tokens a minute its provider takes, for all workers; a
      Retry-After holds for all of them, too.
    - `returns`: the type of the result, if the annotation does not give it.
    - `ignore`: parameters that do not count when a call is compared with its record.
    - `raises`: exception types that come back as themselves, like built-in ones; any other exception of the
      body is raised as `nl.StepFailed`, on the first execution and on replay.
    - `aliases`: earlier names of this step, whose records it keeps.
    - `upgrade`: converts a recorded result (plain JSON data) that no longer fits the type of the result.
    - `id`: a template over the arguments, or a function of them, that gives the call an external id (for
      example the id of a tool call). Its record is found by this id, wherever in the code the call is made.
    - `taint`: where the data that it returns comes from, as one label or several ("web"). From then on the
      run has these labels, which policies read (`taint`), until `nl.declassify` removes them.
    - `cost`: what a call may cost at most: dollars, an `nl.Cost`, or a function of the arguments that returns
      one. It is reserved in the budgets that count the step (docs/budgets.md).
    - `alternatives`: other functions with the same parameters, asked in this order when a way to ask fails.
    - `hedge`: an `nl.Hedge`: when the answer takes long, a second request is sent, to the next alternative or
      to the same function; the first answer counts, and the other request is cancelled.
    - `cache`: an `nl.Cache`: answers that other runs have recorded are used again (docs/models.md).
    """
    refuse_options(options, is_decision=True)
    return _declare(function, {**options, "is_decision": True, "reads_only": True})


@overload
def action(function: Callable[P, R], /, **options: Unpack[ActionOptions]) -> Declared[P, R]: ...
@overload
def action(
    *, transaction: Callable[[], Any], **options: Unpack[TransactionalOptions]
) -> Callable[[Callable[Concatenate[Any, P], R]], Declared[P, R]]: ...
@overload
def action(**options: Unpack[ActionOptions]) -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def action(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an action: a step that touches the world.

    By default an action is resumable: after a crash it may be repeated, with the same `nl.key()`.

    - `resumable=False`: it is not repeated blindly. Its intent is durable before it starts. If a crash leaves
      the outcome of a start unknown, `verify(*args, key=…)` is asked; its answer is trusted once the start
      can have no effect any more and `settle_after` seconds have passed. If the outcome stays unknown, a
      person is asked, or with `in_doubt="raise"` the agent gets InDoubt.
    - `key`: a template over the arguments, or a function of them. All runs that call with the same key share
      one result. `identity` names the arguments that must then be equal; `key_window` is the time after
      which a key may be used again.
    - `transaction`: a function that returns a connection to your own SQLite or PostgreSQL database. The body
      gets it as its first parameter `conn`, and its effect there commits together with the record that it
      was done.
    - `approval`: True, a predicate over the arguments, or an `nl.Approval`. A person approves exactly these
      arguments before the action begins; otherwise `nl.Denied` is raised.
    - `reads_only=True`: the action only reads, so repeating it is harmless. It is retried for hours, as a
      decision is; any other action is tried three times by default.
    - `id`, `name`, `retry`, `breaker`, `limit`, `timeout`, `returns`, `ignore`, `raises`, `aliases`,
      `upgrade`, `taint`, `cost`: see `decision`. With `reads_only=True` also `alternatives`, `hedge` and
      `cache`.
    """
    refuse_options(options, is_decision=False)
    return _declare(function, options)


def _declare(function: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    def declare(declared: Any) -> Any:
        inner = declared.__func__ if isinstance(declared, classmethod | staticmethod) else declared
        step = make_step(inner, **options)
        made = _wrap(step, inner)
        add_step(step, made)
        hooks.declared(step)
        if isinstance(declared, staticmethod):
            return staticmethod(made)
        if isinstance(declared, classmethod) or is_method(inner):
            return Method(made, made.raw, of_class=isinstance(declared, classmethod))
        return made

    return declare if function is None else declare(function)


def _wrap(step: Step, declared: Callable[..., Any]) -> Any:
    if step.is_async:
        execute = steps.call if step.effect is None else non_resumable.call
        if step.model_call is not None:
            execute = model_call.call

        async def call(*args: Any, **kwargs: Any) -> Any:
            # Empty unless two functions share a name: the hot path pays one test.
            if RIVALS:
                _refuse_rival(step)
            return await execute(step, args, kwargs)

        wrapped: Any = call
    else:
        execute_plain = threads.call if step.effect is None else non_resumable.call_plain
        if step.model_call is not None:
            execute_plain = model_call.call_plain

        def call_plain(*args: Any, **kwargs: Any) -> Any:
            if RIVALS:
                _refuse_rival(step)
            return execute_plain(step, args, kwargs)

        wrapped = call_plain
    functools.update_wrapper(wrapped, declared)
    wrapped.__ninelives__ = step
    wrapped.raw = _raw(step, declared)
    return wrapped


def _raw(step: Step, declared: Callable[..., Any]) -> Callable[..., Any]:
    """Return the undecorated function; inside a governed run, only a call that is allowed gets to it."""
    if step.is_async:

        @functools.wraps(declared)
        async def raw(*args: Any, **kwargs: Any) -> Any:
            _require_allowed(step, args, kwargs)
            return await declared(*args, **kwargs)

        return raw

    @functools.wraps(declared)
    def raw_plain(*args: Any, **kwargs: Any) -> Any:
        _require_allowed(step, args, kwargs)
        return declared(*args, **kwargs)

    return raw_plain


def _require_allowed(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    execution = here()
    if execution is None:
        return
    if not step.reads_only and approval.refuses(execution, step):
        raise approval.refusal(execution)
    if execution.governing.governor is None:
        return
    if step.is_transactional:  # its connection is no argument of the call
        args, kwargs = args[1:], {name: value for name, value in kwargs.items() if name != "conn"}
    judging.require_allowed(execution, step, args, kwargs, "undecorated (.raw)")


class _CalledSteps(dict[str, Step]):
    """The steps that a run has called so far and that share their name with another step."""

    def __init__(self, _: Execution) -> None:
        super().__init__()


def _refuse_rival(step: Step) -> None:
    execution = here()
    if execution is not None and step.name in RIVALS:
        refuse_rival(step, execution.component(_CalledSteps), execution.run.id)
