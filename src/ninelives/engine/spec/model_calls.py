"""What a step declares of its model calls: the ways to ask, when a second one is asked, what is reused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.governance.breaker import Breaker
from ninelives.core.model_calls.declarations import Cache, Hedge
from ninelives.core.values.codec import Codec
from ninelives.engine.spec import functions
from ninelives.engine.spec.options import StepOptions

_OPTIONS = ("alternatives", "hedge", "cache")
_FOR_EFFECTS = ("key", "approval", "transaction")


class Way(Struct, frozen=True, eq=False):
    """One way to ask: a function with the step's parameters. `name` is what records and metrics call it.

    `step` is the step that an alternative is, if it is one: its taint and what policies say of it count.
    """

    name: str
    function: Callable[..., Any]
    step: Any = None


class ModelCall(Struct, frozen=True, eq=False):
    """How the calls of a step are answered: by which ways, in this order. The step's own function is first.

    `breaker` is applied to each way as well, in each process, if there are several.
    """

    ways: tuple[Way, ...]
    hedge: Hedge | None = None
    cache: Cache | None = None
    breaker: Breaker | None = None

    @property
    def most(self) -> int:
        """How many requests of one call may be under way at once."""
        return 1 if self.hedge is None else self.hedge.most


def make_model_call(
    function: Callable[..., Any], signature: inspect.Signature, options: StepOptions, codec: Codec, name: str
) -> ModelCall | None:
    """Return how the calls of a step are answered; None for a step that declares nothing of it.

    Raises UsageError for options that are wrong, or on a step that must not be asked twice.
    """
    given = [one for one in _OPTIONS if options.sets(one)]
    breaker = options.breaker
    if isinstance(breaker, Breaker) and breaker.slow is not None and "alternatives" not in given:
        raise UsageError(
            f"{name}: its breaker has slow={breaker.slow!r}, and there is no other way to ask",
            remedy="Give alternatives=[...], or leave out slow=",
        )
    if not given:
        return None
    _refuse_effects(options, given[0], name)
    is_async = functions.is_async(function)
    if options.hedge is not None and not isinstance(options.hedge, Hedge):
        raise UsageError(f"{name}: hedge={options.hedge!r}", remedy="Give nl.Hedge(...)")
    if options.hedge is not None and not is_async:
        raise UsageError(
            f"{name}: hedge= is for async def, and this is a plain function: a thread cannot be cancelled",
            remedy="Make it async def, with the client's async form; alternatives= alone needs no async def",
        )
    if options.cache is not None and not isinstance(options.cache, Cache):
        raise UsageError(f"{name}: cache={options.cache!r}", remedy="Give nl.Cache(ttl=...)")
    if options.cache is not None:
        _refuse_uncached(signature, codec, name)
        _refuse_unknown_question(options.cache, signature, name)
    others = _alternatives(options.alternatives, signature, name, is_async=is_async)
    ways = _named([Way(name, function), *others])
    return ModelCall(ways, options.hedge, options.cache, breaker if len(ways) > 1 else None)


def _refuse_effects(options: StepOptions, option: str, name: str) -> None:
    """Refuse the options on a step that must not be asked twice. Raises UsageError."""
    if not (options.is_decision or options.reads_only):
        raise UsageError(
            f"the action {name!r} has {option}=, which may call it twice, or not at all",
            remedy="Declare it with reads_only=True if it changes nothing; or ask the model in an "
            f"@nl.decision of its own, and leave out {option}= here",
        )
    for other in _FOR_EFFECTS:
        if options.sets(other):
            raise UsageError(
                f"{name}: {option}= and {other}= exclude each other: {other}= is for what is done once",
                remedy=f"Leave out one of them; ask the model in an @nl.decision that has {option}=",
            )


def _refuse_uncached(signature: inspect.Signature, codec: Codec, name: str) -> None:
    """Refuse a cache where equal arguments are not the same question, or answers must not be kept."""
    if next(iter(signature.parameters), "") in ("self", "cls"):
        raise UsageError(
            f"{name}: cache= is for functions, and this is a method: what its object holds is no argument",
            remedy="Declare a function, and pass it what it needs",
        )
    if codec.secrets:
        raise UsageError(
            f"{name}: cache= is given, and it returns a secret",
            remedy="Leave cache= out: secrets are not shared",
        )


def _refuse_unknown_question(cache: Cache, signature: inspect.Signature, name: str) -> None:
    """Refuse a question that is in no argument: nothing would ever be compared."""
    of = cache.meaning.of if cache.meaning is not None else ""
    if of and of not in signature.parameters:
        raise UsageError(
            f"{name}: its nl.Meaning has of={of!r}, and there is no such parameter",
            remedy=f"Give the parameter in which the question is: {signature}",
        )


def _alternatives(given: Any, signature: inspect.Signature, name: str, *, is_async: bool) -> list[Way]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"{name}: alternatives={given!r}", remedy="Give a list of functions")
    return [_alternative(one, signature, name, is_async=is_async) for one in given]


def _alternative(given: Any, signature: inspect.Signature, name: str, *, is_async: bool) -> Way:
    """Return an alternative as a way to ask. Raises UsageError."""
    step: Any = getattr(given, "__ninelives__", None)
    if step is not None and not getattr(step, "reads_only", False):
        raise UsageError(
            f"{name}: the alternative {step.name!r} is no decision and does not only read",
            remedy="Give a plain function, or a step that changes nothing",
        )
    if step is not None and step.approval is not None:
        raise UsageError(
            f"{name}: the alternative {step.name!r} needs a person's approval; an alternative waits for none",
            remedy="Give approval= to the step itself, or a plain function as the alternative",
        )
    # The undecorated function: an alternative is no step of its own, and has no record.
    function = given if step is None else step.function
    if not callable(function):
        raise UsageError(f"{name}: the alternative {given!r} cannot be called", remedy="Give a function")
    named = step.name if step is not None else _name_of(function)
    if functions.is_async(function) is not is_async:
        kind = "a plain function" if is_async else "async def"
        raise UsageError(
            f"{name}: the alternative {named!r} is {kind}, and the step is not",
            remedy="Declare both as async def, or both as plain functions",
        )
    for args, kwargs in _calls(signature):
        try:
            inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"{name}: the alternative {named!r} cannot be called as the step is: {error}",
                remedy=f"Give it the step's parameters: {signature}",
            ) from None
    return Way(named, function, step)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    found = getattr(function, "__qualname__", type(function).__qualname__)
    return str(found).replace("<locals>.", "").rpartition(".")[2]


def _named(ways: list[Way]) -> tuple[Way, ...]:
    """Return the ways, each with a name of its own."""
    found: dict[str, Way] = {}
    for way in ways:
        own, number = way.name, 1
        while own in found:
            number += 1
            own = f"{way.name} {number}"
        found[own] = Way(own, way.function, way.step)
    return tuple(found.values())


def _calls(signature: inspect.Signature) -> list[tuple[list[None], dict[str, None]]]:
    """Return calls that a function with this signature accepts: by position, by name, and the shortest."""
    kinds, empty = inspect.Parameter, inspect.Parameter.empty
    rest = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    every = [one for one in signature.parameters.values() if one.kind not in rest]
    only_named = {one.name: None for one in every if one.kind is kinds.KEYWORD_ONLY}
    by_position = [one for one in every if one.kind is not kinds.KEYWORD_ONLY]
    first = [one for one in by_position if one.kind is kinds.POSITIONAL_ONLY]
    named = {one.name: None for one in by_position if one.kind is kinds.POSITIONAL_OR_KEYWORD}
    more = [None] * any(one.kind is kinds.VAR_POSITIONAL for one in signature.parameters.values())
    if any(one.kind is kinds.VAR_KEYWORD for one in signature.parameters.values()):
        only_named = {**only_named, "any other name": None}
    return [
        ([None for _ in by_position] + more, only_named),
        ([None for _ in first], {**named, **only_named}),
        (
            [None for one in by_position if one.default is empty],
            {one.name: None for one in every if one.kind is kinds.KEYWORD_ONLY and one.default is empty},
        ),
    ]
