"""Declared agents and steps, by name. There is one registry per process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from ninelives.core.errors import DuplicateName, UnknownAgent, UsageError
from ninelives.core.governance.breaker import Breaker
from ninelives.core.governance.costs import Cost, cost_of
from ninelives.core.governance.rate import Limit
from ninelives.core.governance.taint import TaintChange, check_labels
from ninelives.core.ids import check_id
from ninelives.core.journal.approval import Approval, declared
from ninelives.core.model.counter import DECISIONS, READS, RESUMABLE
from ninelives.core.model.run import StepKind
from ninelives.core.values.codec import Codec, codec_for
from ninelives.core.values.exceptions import check_raises
from ninelives.core.values.fingerprint import Taker, check_ignore, taker
from ninelives.core.values.retry import Retry, default_retry
from ninelives.engine.spec import functions
from ninelives.engine.spec.argument_changes import CHECKS, ChecksLeft
from ninelives.engine.spec.callbacks import refuse_async
from ninelives.engine.spec.model_calls import ModelCall, make_model_call
from ninelives.engine.spec.options import StepOptions
from ninelives.engine.spec.protection import KeyMaker, Protection, key_maker, make_protection
from ninelives.engine.spec.transactions import enclose, without_connection

DURABILITIES = ("strict", "pipelined")


class Step(Struct, frozen=True, eq=False):
    """A declared step, with its options checked."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    fingerprint: Taker
    codec: Codec
    is_async: bool
    is_decision: bool
    reads_only: bool
    retry: Retry
    timeout_seconds: float | None
    ignore: tuple[str, ...]
    raises: tuple[type[BaseException], ...]
    aliases: tuple[str, ...]
    upgrade: Callable[[Any], Any] | None
    approval: Approval | None
    checks: ChecksLeft
    kind: StepKind
    slot: int
    """Where a plain outcome of it is counted (`core.model.counter.StepCounts`)."""
    effect: Protection | None = None
    enclose: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    """Wraps the body of a transactional step; applied in `function`."""
    breaker: Breaker | None = None
    limit: Limit | None = None
    explicit_id: KeyMaker | None = None
    """Makes a call's external id, if the step declares `id=`."""
    taint: TaintChange | None = None
    """Where the data that it reads comes from, if the step declares `taint=`."""
    cost: Cost | Callable[..., Any] | None = None
    """What a call may cost at most, or a function of its arguments."""
    by_position: tuple[str, ...] | None = None
    """The names of its parameters, if all of them may be given by position."""
    model_call: ModelCall | None = None
    """How its calls are answered, if it declares alternatives, a hedge or a cache."""

    @property
    def is_transactional(self) -> bool:
        """Whether the body runs in a transaction of the user's database."""
        return self.enclose is not None

    @property
    def where(self) -> str:
        """Source location of the step: file and line."""
        return location_of(self.function)


class Agent(Struct, frozen=True, eq=False):
    """A declared agent, with its options checked and a codec for each parameter and for the result."""

    name: str
    function: Callable[..., Any]
    signature: inspect.Signature
    fingerprint: Taker
    codecs: dict[str, Codec]
    result: Codec
    is_async: bool
    is_pipelined: bool
    lives: int
    queue: str
    is_pinned: bool
    on_stale: Callable[[Any], Any] | None = None
    timeout_seconds: float | None = None
    forgets: tuple[str, ...] = ()


AGENTS: dict[str, Agent] = {}
STEPS: dict[str, Callable[..., Any]] = {}
"""Step name → its call; the last declaration wins. Names in the journal refer to these."""
RIVALS: dict[str, DuplicateName] = {}
"""Names shared by two module-level functions: allowed in different agents, rejected within one run."""


def add_agent(agent: Agent) -> None:
    """Register an agent under its name.

    Raises DuplicateName when another function has the name. The same function again (a reload) replaces the
    first, and so does a later definition in `__main__` (an edited cell of a notebook).
    """
    known = AGENTS.get(agent.name)
    if (
        known is not None
        and location_of(known.function) != location_of(agent.function)
        and not functions.is_redefined(known.function, agent.function)
    ):
        raise DuplicateName(
            f"two agents are {agent.name!r}: {location_of(known.function)} and {location_of(agent.function)}",
            remedy="Give one of them name=",
        )
    AGENTS[agent.name] = agent


def add_step(step: Step, call: Callable[..., Any]) -> None:
    """Register a step under its name; note in RIVALS when another module-level function has the name."""
    known = find_step(step.name)
    if known is not None and functions.are_rivals(known.function, step.function):
        RIVALS[step.name] = rivalry(known, step)
    STEPS[step.name] = call


def declared_breakers() -> dict[str, Breaker]:
    """Return the breakers that steps declare, by the steps' names."""
    steps = (find_step(name) for name in STEPS)
    return {step.name: step.breaker for step in steps if step is not None and step.breaker is not None}


def needs_governor() -> bool:
    """Return whether a step declares what all workers keep together: a breaker, a limit."""
    steps = (find_step(name) for name in STEPS)
    return any(step is not None and (step.breaker or step.limit) is not None for step in steps)


def rivalry(known: Step, other: Step) -> DuplicateName:
    """Return the error for two functions with one name."""
    return DuplicateName(
        f"two steps are {known.name!r}: {known.where} and {other.where}", remedy="Give one of them name="
    )


def refuse_rival(step: Step, called: dict[str, Step], run: str) -> None:
    """Reject calls of two steps of one name in one run: their records could be confused.

    `called` keeps the steps that the run has called so far. Raises DuplicateName.
    """
    known = called.setdefault(step.name, step)
    if known is not step and functions.are_rivals(known.function, step.function):
        error = rivalry(known, step)
        error.run = run
        raise error


def get_agent(agent: object) -> Agent:
    """Return an agent by its function or its name.

    Raises UnknownAgent.
    """
    if isinstance(agent, str):
        if agent in AGENTS:
            return AGENTS[agent]
    else:
        found = getattr(agent, "__ninelives__", None)
        if isinstance(found, Agent):
            return found
    known = ", ".join(sorted(AGENTS)) or "none"
    raise UnknownAgent(
        f"{getattr(agent, '__name__', agent)!r} is no agent here",
        remedy=f"Decorate it with @nl.agent. Known: {known}",
    )


def find_step(name: str) -> Step | None:
    """Return the step declared last under a name."""
    found = getattr(STEPS.get(name), "__ninelives__", None)
    return found if isinstance(found, Step) else None


def make_agent(
    function: Callable[..., Any],
    name: str | None,
    durability: str,
    queue: str,
    pin: str | None,
    on_stale: Callable[[Any], Any] | None = None,
    timeout: float | None = None,
    lives: int = 9,
    forgets: Sequence[str] = (),
) -> Agent:
    """Check an agent's declaration.

    Raises UsageError for a bad option, and for an annotation that has no codec, naming the parameter.
    """
    if durability not in DURABILITIES:
        raise UsageError(f"durability={durability!r}", remedy=f"It is one of {', '.join(DURABILITIES)}")
    if type(lives) is not int or lives < 1:
        raise UsageError(f"lives={lives!r}", remedy="Say how many deaths a run may cost: 1 or more")
    if pin not in (None, "host"):
        raise UsageError(f"pin={pin!r}", remedy='It is "host", or left out')
    named = _named(function, name, "agent")
    signature = signature_of(function)
    parameters = signature.parameters.values()
    return Agent(
        name=named,
        function=function,
        signature=signature,
        fingerprint=taker(signature),
        codecs={
            one.name: codec_for(annotated(one.annotation), where=f"{named}({one.name})") for one in parameters
        },
        result=codec_for(annotated(signature.return_annotation), where=f"{named} ->"),
        is_async=functions.is_async(function),
        is_pipelined=durability == "pipelined",
        lives=lives,
        queue=check_id(queue, "queue"),
        is_pinned=pin is not None,
        on_stale=on_stale,
        timeout_seconds=_seconds(timeout),
        forgets=_names(forgets, "forgets"),
    )


def make_step(function: Callable[..., Any], **given: Any) -> Step:
    """Check a step's declaration; `given` are fields of `StepOptions`.

    Raises UsageError for bad options; BadName.
    """
    options = StepOptions(**given)
    named = _named(function, options.name, "step")
    signature = signature_of(function)
    approval = declared(options.approval)
    refuse_async(f"{named}: approval=", approval.when if approval is not None else None)
    refuse_async(f"{named}: upgrade=", options.upgrade)
    if approval is not None and options.is_decision:
        raise UsageError(f"the decision {named!r} has approval=", remedy="Approve the action that follows it")
    ignore = tuple(options.ignore)
    check_ignore(signature, ignore)
    if options.reads_only and options.resumable is False:
        raise UsageError(
            f"the action {named!r} has reads_only=True and resumable=False",
            remedy="What only reads may be repeated: leave out one of them",
        )
    seconds = _seconds(options.timeout)
    annotation = options.returns if options.returns is not None else signature.return_annotation
    codec, transaction = codec_for(annotated(annotation), where=f"{named} ->"), options.transaction
    enclosing: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    if transaction is not None:
        # Callers leave `conn` out, so it must not count in the fingerprint.
        signature = without_connection(signature, named)
        enclosing = partial(enclose, transaction=transaction, codec=codec)
        function = enclosing(function)
    return Step(
        name=named,
        function=function,
        signature=signature,
        fingerprint=taker(signature, ignore=ignore),
        codec=codec,
        is_async=functions.is_async(function),
        enclose=enclosing,
        is_decision=options.is_decision,
        reads_only=options.reads_only,
        retry=_retry_of(options, named),
        breaker=_breaker_of(options, named),
        limit=_limit_of(options, named),
        timeout_seconds=seconds,
        ignore=ignore,
        raises=check_raises(tuple(options.raises)),
        aliases=_names(options.aliases, "aliases"),
        upgrade=options.upgrade,
        approval=approval,
        # Without parameters no argument can change, and no call pays for the check.
        checks=ChecksLeft(CHECKS if signature.parameters else 0),
        kind=_kind_of(options),
        slot=_SLOTS[_kind_of(options)],
        effect=make_protection(signature, options, name=named, timeout=seconds),
        explicit_id=key_maker(options.id, signature, "id"),
        taint=_taint_of(options, named),
        cost=_cost_of(options.cost, named),
        by_position=_by_position(signature),
        model_call=make_model_call(function, signature, options, codec, named),
    )


def _by_position(signature: inspect.Signature) -> tuple[str, ...] | None:
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = signature.parameters.values()
    return tuple(signature.parameters) if all(one.kind in plain for one in given) else None


_SLOTS = {StepKind.DECISION: DECISIONS, StepKind.READ: READS, StepKind.ACTION: RESUMABLE}


def _kind_of(options: StepOptions) -> StepKind:
    if options.is_decision:
        return StepKind.DECISION
    return StepKind.READ if options.reads_only else StepKind.ACTION


def _taint_of(options: StepOptions, named: str) -> TaintChange | None:
    labels = check_labels(options.taint, f"{named}: taint=")
    return TaintChange(labels) if labels else None


def _retry_of(options: StepOptions, named: str) -> Retry:
    given = options.retry
    if given is None:
        return default_retry(changes_nothing=options.is_decision or options.reads_only)
    if not isinstance(given, Retry):
        raise UsageError(f"{named}: retry={given!r}", remedy="Give nl.Retry(...), or leave it out")
    return given


def _breaker_of(options: StepOptions, named: str) -> Breaker | None:
    given = options.breaker
    if given is not None and not isinstance(given, Breaker):
        raise UsageError(
            f"{named}: breaker={given!r}", remedy="Give nl.Breaker(failures=5, within='1m', open='30s')"
        )
    return given


def _limit_of(options: StepOptions, named: str) -> Limit | None:
    given = options.limit
    if given is not None and not isinstance(given, Limit):
        raise UsageError(f"{named}: limit={given!r}", remedy="Give nl.Limit(per_minute=60, key='openai')")
    return given


def _cost_of(cost: Any, named: str) -> Cost | Callable[..., Any] | None:
    if cost is None:
        return None
    if callable(cost):
        refuse_async(f"{named}: cost=", cost)
        return cast("Callable[..., Any]", cost)
    try:
        found = cost_of(cost)
        found.amounts()
    except UsageError as error:
        raise UsageError(f"{named}: {error.what}", remedy=error.remedy) from None
    return found


def _named(function: Callable[..., Any], name: str | None, what: str) -> str:
    """Return the name of an agent or step.

    Raises UsageError when `function` cannot be called, is a generator, or has no name (a lambda); BadName.
    """
    if not callable(function):
        raise UsageError(
            f"{function!r} is declared as a {what}, and cannot be called", remedy="Give a function"
        )
    # A generator behind a decorator yields, too.
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise UsageError(
            f"the {what} at {location_of(function)} yields: it would give many values, and one is recorded",
            remedy="Pass the parts on with nl.emit as they come, and return the whole",
        )
    own = getattr(function, "__qualname__", "").replace("<locals>.", "")
    if not name and (not own or own.endswith("<lambda>")):
        raise UsageError(
            f"the {what} at {location_of(function)} has no name of its own, and its records need one",
            remedy="Give it name=",
        )
    return check_id(name or own, f"{what} name")


def annotated(annotation: Any) -> Any:
    """Return an annotation for the codec; a missing one becomes Any."""
    return Any if annotation is inspect.Signature.empty else annotation


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a signature with its annotations resolved.

    Raises UsageError when an annotation names a type that is not defined yet, or there is no signature.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except NameError as error:
        raise UsageError(
            f"an annotation at {location_of(function)} cannot be resolved: {error}",
            remedy="Define the type before the function, at the level of the module",
        ) from None
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{function!r} does not say what its parameters are: {error}",
            remedy="Declare a function of your own that calls it",
        ) from None


def code_version(agents: Iterable[str]) -> str:
    """Return a version of some agents' code: a digest of their source files, where these can be read."""
    functions = (inspect.unwrap(AGENTS[name].function) for name in agents)
    files = {code.co_filename for one in functions if (code := getattr(one, "__code__", None)) is not None}
    digest = blake2b(digest_size=6)
    for file in sorted(files):
        try:
            digest.update(Path(file).read_bytes())
        except OSError:
            # A notebook's cell has no file: its name alone must stand for it.
            digest.update(file.encode(errors="replace"))
    return digest.hexdigest()


def location_of(function: Callable[..., Any]) -> str:
    """Return a function's source location: file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _names(names: Sequence[str], option: str) -> tuple[str, ...]:
    """Check a list of step names. Raises UsageError, BadName."""
    if isinstance(names, str):
        raise UsageError(f"{option}={names!r}", remedy=f'Give a list of names: {option}=["{names}"]')
    return tuple(check_id(name, f"name in {option}=") for name in names)


def _seconds(value: float | None) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and value > 0):
        raise UsageError(f"timeout={value!r}", remedy="Give seconds above 0, or leave it out")
    return value
