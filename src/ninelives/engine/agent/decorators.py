"""The decorators: `agent`, `decision`, `action`. A decorated function keeps its signature.

With no runtime in the process, decorated functions are ordinary functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast, overload

from ninelives.core.errors import StaleResource, UsageError
from ninelives.core.journal.approval import Approval
from ninelives.core.values.retry import Retry
from ninelives.engine.protected import non_resumable
from ninelives.engine.run.current import here
from ninelives.engine.spec.methods import Method, is_method
from ninelives.engine.spec.protection import OPTIONS
from ninelives.engine.spec.registry import (
    RIVALS,
    Step,
    add_agent,
    add_step,
    make_agent,
    make_step,
    refuse_rival,
)
from ninelives.engine.step import resumable as steps
from ninelives.engine.step import threads

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")


class Declared(Protocol, Generic[P, R_co]):
    """A declared function: called as before; `raw` calls it unprotected."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it."""

    @property
    def raw(self) -> Callable[P, R_co]:
        """The undecorated function; of a method of an object, bound to it as well."""

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
    """Declare an agent: a function whose runs survive.

    `durability`: "strict", a step returns when its outcome is durable; "pipelined", decisions and reads
    return at once, and all is durable before anything that the world can see.
    `lives`: how many workers may die of a run, each of which had no other, before it is put before a person.
    `pin="host"`: its runs are worked on by the host that started them, where their files and branches are.
    `on_stale`, plain or async, is given what the run holds and found gone or changed when it came back: if
    it returns, the run goes on with the resource as it is; if it raises what it was given, a person is
    asked; if it raises anything else, the run fails.
    `timeout`: a run that has not ended so many seconds after its start fails with TimedOut, wherever it is.
    `forgets` names steps whose recorded effects this code gives up on purpose: a run that has them on record
    goes on although the code asks for them no more.
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
def decision(function: Callable[P, R], /) -> Declared[P, R]: ...
@overload
def decision(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    retry: Retry = ...,
    timeout: float | None = None,
    returns: Any = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[BaseException]] = (),
    aliases: Sequence[str] = (),
    id: str | Callable[..., str] | None = None,
    upgrade: Callable[[Any], Any] | None = None,
) -> Declared[P, R]: ...
@overload
def decision(
    *,
    name: str | None = None,
    retry: Retry = ...,
    timeout: float | None = None,
    returns: Any = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[BaseException]] = (),
    aliases: Sequence[str] = (),
    id: str | Callable[..., str] | None = None,
    upgrade: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def decision(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a decision: a model's answer, recorded and never asked for twice.

    `id`, a template over the arguments or a function of them, names a call from outside (the id of a tool
    call): its record is found by it, wherever in the code it is asked for.
    """
    return _declare(function, {**options, "is_decision": True, "reads_only": True})


@overload
def action(function: Callable[P, R], /) -> Declared[P, R]: ...
@overload
def action(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    resumable: bool = True,
    reads_only: bool = False,
    approval: bool | Callable[..., object] | Approval = False,
    key: str | Callable[..., str] | None = None,
    key_window: float | timedelta | None = None,
    identity: str | Sequence[str] | None = None,
    verify: Callable[..., Any] | None = None,
    settle_after: float | timedelta = 0,
    in_doubt: Literal["escalate", "raise"] = "escalate",
    retry: Retry = ...,
    timeout: float | None = None,
    returns: Any = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[BaseException]] = (),
    aliases: Sequence[str] = (),
    id: str | Callable[..., str] | None = None,
    upgrade: Callable[[Any], Any] | None = None,
) -> Declared[P, R]: ...
@overload
def action(
    *,
    name: str | None = None,
    transaction: Callable[[], Any],
    reads_only: bool = False,
    approval: bool | Callable[..., object] | Approval = False,
    key: str | Callable[..., str] | None = None,
    key_window: float | timedelta | None = None,
    identity: str | Sequence[str] | None = None,
    retry: Retry = ...,
    timeout: float | None = None,
    returns: Any = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[BaseException]] = (),
    aliases: Sequence[str] = (),
    id: str | Callable[..., str] | None = None,
    upgrade: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[Concatenate[Any, P], R]], Declared[P, R]]: ...
@overload
def action(
    *,
    name: str | None = None,
    resumable: bool = True,
    reads_only: bool = False,
    approval: bool | Callable[..., object] | Approval = False,
    key: str | Callable[..., str] | None = None,
    key_window: float | timedelta | None = None,
    identity: str | Sequence[str] | None = None,
    verify: Callable[..., Any] | None = None,
    settle_after: float | timedelta = 0,
    in_doubt: Literal["escalate", "raise"] = "escalate",
    retry: Retry = ...,
    timeout: float | None = None,
    returns: Any = None,
    ignore: Sequence[str] = (),
    raises: Sequence[type[BaseException]] = (),
    aliases: Sequence[str] = (),
    id: str | Callable[..., str] | None = None,
    upgrade: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[P, R]], Declared[P, R]]: ...
def action(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an action: it touches the world, and may be repeated after a crash, under the same key.

    `approval`: True, a predicate over the arguments, or an `nl.Approval`: a person says yes to exactly these
    arguments before it begins, or `nl.Denied` is raised.

    With `resumable=False` it is not: its intent is durable before it starts, and a start whose fate is not
    known is put to `verify(*args, key=…)`, which is believed once nothing can land any more and
    `settle_after` seconds have passed. What stays unknown goes to a person, or with `in_doubt="raise"` to the
    agent, as InDoubt. With `key`, a template over the arguments or a function of them, there is one result
    for all runs that ask with the same key; `identity` names the arguments that must then be equal, and
    `key_window` is the time after which a key may be used again. With `transaction`, which gives a connection
    to the user's own SQLite or PostgreSQL database, the body gets it as its first parameter `conn`, and its
    effect there commits together with the record that it was done. `id` names a call from outside, as for
    decisions.
    """
    return _declare(function, {"reads_only": False, **options, "is_decision": False})


_DEFAULTS: dict[str, Any] = {
    "name": None,
    "retry": Retry(),
    "timeout": None,
    "returns": None,
    "ignore": (),
    "raises": (),
    "aliases": (),
    "id": None,
    "upgrade": None,
    "approval": False,
}


_ACTIONS_ONLY = frozenset([*OPTIONS, "approval"])


def _declare(function: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    _refuse_options(options)

    def declare(declared: Any) -> Any:
        inner = declared.__func__ if isinstance(declared, classmethod | staticmethod) else declared
        step = make_step(inner, **{**_DEFAULTS, **options})
        made = _wrap(step, inner)
        add_step(step, made)
        if isinstance(declared, staticmethod):
            return staticmethod(made)
        if isinstance(declared, classmethod) or is_method(inner):
            return Method(made, inner, of_class=isinstance(declared, classmethod))
        return made

    return declare if function is None else declare(function)


def _refuse_options(options: dict[str, Any]) -> None:
    """Refuse options that do not exist, or not here. Raises UsageError."""
    if options["is_decision"] and (misplaced := sorted(_ACTIONS_ONLY & options.keys())):
        raise UsageError(
            f"{misplaced[0]}= is for actions, not for decisions",
            remedy="A decision only asks a model. What touches the world is declared with nl.action",
        )
    known = (
        _DEFAULTS.keys() - _ACTIONS_ONLY if options["is_decision"] else {*_DEFAULTS, *OPTIONS, "reads_only"}
    )
    unknown = sorted(options.keys() - known - {"is_decision", "reads_only"})
    if unknown:
        raise UsageError(f"there is no option {unknown[0]}=", remedy=f"There are: {', '.join(sorted(known))}")


def _wrap(step: Step, declared: Callable[..., Any]) -> Any:
    if step.effect is not None:
        call: Any = _wrap_protected(step, declared)
    elif step.is_async:

        @functools.wraps(declared)
        async def call(*args: Any, **kwargs: Any) -> Any:
            if RIVALS:
                _refuse_rival(step)
            return await steps.call(step, args, kwargs)

    else:

        @functools.wraps(declared)
        def call(*args: Any, **kwargs: Any) -> Any:
            if RIVALS:
                _refuse_rival(step)
            return threads.call(step, args, kwargs)

    wrapped = cast("Any", call)
    wrapped.__ninelives__ = step
    wrapped.raw = declared
    return wrapped


def _refuse_rival(step: Step) -> None:
    execution = here()
    if execution is not None and step.name in RIVALS:
        if execution.called is None:
            execution.called = {}
        refuse_rival(step, execution.called, execution.run.id)


def _wrap_protected(step: Step, declared: Callable[..., Any]) -> Any:
    if step.is_async:

        @functools.wraps(declared)
        async def call(*args: Any, **kwargs: Any) -> Any:
            if RIVALS:
                _refuse_rival(step)
            return await non_resumable.call(step, args, kwargs)

        return call

    @functools.wraps(declared)
    def plain(*args: Any, **kwargs: Any) -> Any:
        if RIVALS:
            _refuse_rival(step)
        return non_resumable.call_plain(step, args, kwargs)

    return plain
