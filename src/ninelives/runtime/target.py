"""Find the agent that a command line names, and convert its words to the agent's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from ninelives.core.errors import Corrupt, Divergence, UnknownAgent, UsageError
from ninelives.core.values.codec import Codec
from ninelives.engine.spec.methods import is_method
from ninelives.engine.spec.registry import AGENTS, Agent
from ninelives.runtime import agent_loader

_RECORDED = "a recorded value no longer fits its annotation: "


def agent(target: str) -> Agent:
    """Load FILE_OR_MODULE:AGENT; without :AGENT, the only agent that is declared.

    Raises UsageError, UnknownAgent.
    """
    source, colon, name = target.rpartition(":")
    if not colon or name.endswith(".py") or "/" in name:
        source, name = target, ""
    module = agent_loader.load(source)
    if name:
        found = getattr(getattr(module, name, None), "__ninelives__", None) or AGENTS.get(name)
        if isinstance(found, Agent):
            return _startable(found)
        raise UnknownAgent(f"{source} has no agent {name!r}", remedy=_known(source))
    if len(AGENTS) == 1:
        return next(iter(AGENTS.values()))
    raise UsageError(f"{target!r} does not name the agent", remedy=_known(source))


def _startable(agent: Agent) -> Agent:
    """Refuse a method: a command has no object to call it on. Raises UsageError."""
    function = inspect.unwrap(agent.function)
    names = [*agent.signature.parameters]
    if is_method(function) and names[:1] == ["self"]:
        raise UsageError(
            f"{agent.name!r} is a method, and a command has no object to call it on",
            remedy="Name a function instead: declare an agent that creates the object and calls its steps",
        )
    return agent


def _known(source: str) -> str:
    names = ", ".join(sorted(AGENTS))
    return f"Known agents: {names}" if names else f"Declare one in {source} with @nl.agent"


# Arguments ---------------------------------------------------------------------------------------


def arguments(
    agent: Agent, words: Sequence[str], named: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for an agent: JSON values, decoded by its annotations.

    A word that is not JSON is taken as text; so is a JSON word that fits only as text. Raises UsageError.
    """
    given: dict[str, str] = {}
    for text in named:
        name, equals, word = text.partition("=")
        if not equals:
            raise UsageError(f"--arg {text!r}", remedy="Write it as NAME=JSON")
        given[name] = word
    parameters = list(agent.signature.parameters.values())
    slots = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((one for one in parameters if one.kind is one.VAR_POSITIONAL), None)
    extra = next((one for one in parameters if one.kind is one.VAR_KEYWORD), None)
    values = []
    for count, word in enumerate(words):
        slot = slots[count] if count < len(slots) else rest
        if slot is None:
            raise _unfit(agent, f"{len(words)} arguments given, it takes {len(slots)}")
        values.append(_value(agent, slot, word, f"argument {count + 1} ({slot.name})"))
    keywords = {}
    for name, word in given.items():
        slot = agent.signature.parameters.get(name, extra)
        if slot is None or slot is rest:
            raise _unfit(agent, f"it has no parameter {name!r}")
        keywords[name] = _value(agent, slot, word, f"argument {name!r}")
    try:
        agent.signature.bind(*values, **keywords)
    except TypeError as error:
        raise _unfit(agent, str(error)) from None
    return tuple(values), keywords


def _unfit(agent: Agent, why: str) -> UsageError:
    return UsageError(
        f"the arguments do not fit {agent.name!r}: {why}",
        remedy=f"Its signature is {agent.name}{agent.signature}",
    )


def _value(agent: Agent, slot: inspect.Parameter, word: str, what: str) -> Any:
    codec = agent.codecs[slot.name]
    try:
        data = word.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8", remedy="Give it as JSON, with \\u escapes") from None
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if word[:1] in ("{", "[", '"') and slot.annotation is not str:
            raise UsageError(
                f"{what} is not valid JSON: {error}", remedy="Quote it for the shell: '...'"
            ) from None
        return _decoded(codec, msgspec.json.encode(word), what)
    try:
        return _decoded(codec, data, what)
    except UsageError:
        try:
            return _decoded(codec, msgspec.json.encode(word), what)
        except UsageError:
            pass
        raise


def _decoded(codec: Codec, data: bytes, what: str) -> Any:
    try:
        return codec.decode(data)
    except (Divergence, Corrupt) as error:
        why = error.what.removeprefix(_RECORDED).replace("the recorded ", "the given ")
        raise UsageError(
            f"{what} does not fit its annotation: {why}",
            path=error.path,
            remedy="Give a JSON value that fits",
        ) from None
