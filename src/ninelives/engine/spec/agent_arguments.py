"""Encode and decode an agent's arguments: each parameter with its codec, long lists split into blobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import Corrupt, Divergence, NotSerializable, UsageError
from ninelives.core.secret import KEPT
from ninelives.core.values import lists
from ninelives.engine.spec.registry import Agent
from ninelives.store import Store


class Arguments(Struct, frozen=True, omit_defaults=True):
    """Encoded arguments: `p` by name, then `*args` and `**kwargs`; `split` names those kept as blobs."""

    p: dict[str, Raw] = {}
    args: list[Raw] = []
    kwargs: dict[str, Raw] = {}
    split: tuple[str, ...] = ()


_DECODE = msgspec.json.Decoder(Arguments).decode


def encode(
    agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_parts: bool = True
) -> tuple[bytes, dict[bytes, bytes]]:
    """Encode the arguments of a call; returns the body and the blobs that it refers to, by digest.

    Raises NotSerializable with the path to the bad value; UsageError when the arguments do not fit the
    signature.
    """
    try:
        bound = _bound(agent, args, kwargs)
    except TypeError as error:
        raise UsageError(
            f"the arguments do not fit {agent.name!r}: {error}", remedy=f"Its signature is {agent.signature}"
        ) from None
    named: dict[str, Raw] = {}
    rest: list[Raw] = []
    extra: dict[str, Raw] = {}
    for name, value in bound.items():
        kind = agent.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            rest = [_one(agent, name, item) for item in value]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            extra = {key: _one(agent, name, item) for key, item in value.items()}
        else:
            named[name] = _one(agent, name, value)
    made: dict[bytes, bytes] = {}
    divided = []
    # Not where each value is encrypted as a whole: parts would show which of them are equal.
    for name, value in named.items() if in_parts and not KEPT.get() else ():
        whole, found = lists.split(bytes(value))
        if found:
            named[name] = Raw(whole)
            made |= found
            divided.append(name)
    return msgspec.json.encode(Arguments(named, rest, extra, tuple(divided))), made


def _bound(agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter. Raises TypeError when they do not fit."""
    parameters = agent.signature.parameters
    is_usual = not kwargs and len(args) == len(parameters)
    if is_usual and all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters.values()):
        return dict(zip(parameters, args, strict=True))  # `bind` takes several times as long
    return agent.signature.bind(*args, **kwargs).arguments


def _one(agent: Agent, name: str, value: object) -> Raw:
    try:
        # `round`, not `encode`: a value that cannot be read back must fail here, and not in the worker.
        return Raw(agent.codecs[name].round(value)[0])
    except NotSerializable as error:
        error.path = f"{agent.name}({name}){(error.path or '$')[1:]}"
        raise


def parts_of(data: bytes, fetch: Callable[[list[bytes]], Mapping[bytes, bytes]]) -> set[bytes]:
    """Return the digests of the blobs that encoded arguments refer to. Raises Corrupt."""
    kept = _DECODE(data)
    used: set[bytes] = set()
    for name in kept.split:
        used |= lists.join(bytes(kept.p[name]), fetch)[1]
    return used


def has_parts(data: bytes) -> bool:
    """Return whether encoded arguments may refer to blobs; False is certain."""
    return b'"split":' in data


def parts(store: Store, data: bytes) -> dict[bytes, bytes]:
    """Return the blobs that encoded arguments refer to, by digest, so that `decode` needs no store.

    Raises Corrupt.
    """
    found: dict[bytes, bytes] = {}

    def fetch(digests: list[bytes]) -> Mapping[bytes, bytes]:
        contents = store.get_blobs(digests)
        found.update(contents)
        return contents

    parts_of(data, fetch)
    return found


def decode_action(
    action: Agent, data: bytes, run: str, contents: Mapping[bytes, bytes]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a registered action (a compensation), positional and by keyword.

    Raises Divergence when this code cannot read them, whatever the own code of an argument raises; Corrupt.
    """
    try:
        args, kwargs, _ = decode(action, data, run, contents, "action")
    except (Divergence, Corrupt):
        raise
    except BaseException as error:
        raise Divergence(
            f"the arguments of the action {action.name!r} cannot be read: {error!r}{_notes(error)}",
            run=run,
            remedy="Fix the code of the argument's type, then retry",
        ) from error
    return args, kwargs


def _notes(error: BaseException) -> str:
    return "".join(f", {note}" for note in getattr(error, "__notes__", ()))


def decode(
    agent: Agent, data: bytes, run: str, contents: Mapping[bytes, bytes], kind: str = "agent"
) -> tuple[tuple[Any, ...], dict[str, Any], set[bytes]]:
    """Return the positional and keyword arguments, and the digests of the blobs that they were in.

    Raises Divergence when they no longer fit the agent's parameters; Corrupt; and what the own code of an
    argument raises, with a note that names the argument.
    """
    try:
        kept = _DECODE(data)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the run's arguments cannot be read: {error}", run=run) from None
    used: set[bytes] = set()
    for name in kept.split:
        whole, found = lists.join(bytes(kept.p[name]), lambda _: contents)
        kept.p[name] = Raw(whole)
        used |= found
    parameters = agent.signature.parameters
    if unknown := sorted(kept.p.keys() - parameters.keys()):
        raise Divergence(
            f"the {kind} {agent.name!r} has no parameter {unknown[0]!r} any more",
            run=run,
            remedy="Put the parameter back, with a default if you like",
        )
    try:
        positional, named = _values(agent, kept)
    except Divergence as error:
        error.run = run
        raise
    return tuple(positional), named, used


def _values(agent: Agent, kept: Arguments) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of a call by the agent's parameters as they are now. Raises Divergence."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    defaults: list[Any] = []  # of positional parameters left out; used if a later one was given
    rest, extra = kept.args, kept.kwargs
    for name, one in agent.signature.parameters.items():
        if one.kind is one.VAR_POSITIONAL:
            if rest:
                positional += [*defaults, *(_recall(agent, name, item) for item in rest)]
                rest = []
        elif one.kind is one.VAR_KEYWORD:
            named |= {key: _recall(agent, name, item) for key, item in extra.items()}
            extra = {}
        elif name not in kept.p:
            if one.default is one.empty:
                raise _unfit(agent, f"missing a required argument: {name!r}")
            if one.kind is not one.KEYWORD_ONLY:
                defaults.append(one.default)
        elif one.kind is one.KEYWORD_ONLY:
            named[name] = _recall(agent, name, kept.p[name])
        else:
            positional += [*defaults, _recall(agent, name, kept.p[name])]
            defaults = []
    if rest or extra:
        gone = "*args" if rest else "**kwargs"
        raise _unfit(agent, f"it takes no {gone} any more", f"Put {gone} back until this run has ended")
    if kept.kwargs:  # one of them may have become a parameter, which then has two values
        try:
            agent.signature.bind(*positional, **named)
        except TypeError as error:
            raise _unfit(agent, str(error)) from None
    return positional, named


def _recall(agent: Agent, name: str, data: Raw) -> Any:
    try:
        return agent.codecs[name].recall(bytes(data))
    except Divergence as error:
        error.path = f"{agent.name}({name}){(error.path or '$')[1:]}"
        raise
    except BaseException as error:
        error.add_note(f"raised by the argument {name!r}")
        raise


def _unfit(agent: Agent, why: str, remedy: str = "Give new parameters a default") -> Divergence:
    return Divergence(f"the recorded arguments do not fit {agent.name!r} any more: {why}", remedy=remedy)
