"""Find the agent that a person names, and make its arguments of what they typed.

Importing a file runs it: whatever goes wrong there is told with its place, and nothing has been started.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ninelives.core.codec import Codec
from ninelives.core.errors import Corrupt, Divergence, NineLivesError, UnknownAgent, UsageError
from ninelives.engine.registry import AGENTS, Agent

_RECORDED = "a recorded value no longer fits its annotation: "


def agent(target: str) -> Agent:
    """Load FILE_OR_MODULE:AGENT; without :AGENT, the only agent that is there.

    Raises UsageError, UnknownAgent.
    """
    place, colon, name = target.rpartition(":")
    if not colon or name.endswith(".py") or "/" in name:
        place, name = target, ""
    module = _file(Path(place)) if _is_file(place) else _module(place)
    if name:
        found = getattr(getattr(module, name, None), "__ninelives__", None) or AGENTS.get(name)
        if isinstance(found, Agent):
            return found
        raise UnknownAgent(f"{place} has no agent {name!r}", remedy=_known(place))
    if len(AGENTS) == 1:
        return next(iter(AGENTS.values()))
    raise UsageError(f"{target!r} does not say which agent", remedy=_known(place))


def _known(place: str) -> str:
    names = ", ".join(sorted(AGENTS))
    return f"There are: {names}" if names else f"Declare one in {place} with @nl.agent"


def _is_file(place: str) -> bool:
    return place.endswith(".py") or place.startswith(".") or "/" in place or Path(place).is_file()


def _file(path: Path) -> Any:
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory", remedy="Name the file in it, or the module by its dotted name"
        )
    if not path.is_file():
        raise UsageError(f"there is no file {path}", remedy=f"It is looked for in {Path.cwd()}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():  # part of a package: its relative imports must work
        parts.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    if len(parts) > 1:
        return _module(".".join(parts))
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"__{name}__"  # a file called json.py must not become everybody's json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", remedy="Name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _imported(str(path), lambda: loader.exec_module(module))
    return module


def _module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _imported(name, lambda: importlib.import_module(name))


def _imported(name: str, load: Any) -> Any:
    try:
        return load()
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}:{error.offset}"
        line = f": {error.text.strip()}" if error.text else ""
        raise UsageError(f"{place}: {error.msg}{line}", remedy="Mend the file and try again") from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {error.name!r}",
                remedy="Name a file, or a module that can be imported here",
            ) from None
        raise _broken(name, error) from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> UsageError:
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    where = f" at {places[-1].filename}:{places[-1].lineno}" if places else ""
    said = error.what if isinstance(error, NineLivesError) else str(error)
    return UsageError(
        f"{name} cannot be imported: {type(error).__name__}: {said}{where}",
        remedy=(error.remedy if isinstance(error, NineLivesError) else None) or "Mend it and try again",
    )


# Arguments ---------------------------------------------------------------------------------------


def arguments(
    agent: Agent, words: Sequence[str], named: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make the arguments of an agent: JSON values, read by its annotations.

    A word that is not JSON is taken as text; so is one that is, where only text fits. Raises UsageError.
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
            raise _unfit(agent, f"{len(words)} arguments, where it takes {len(slots)}")
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
            raise UsageError(f"{what} is no JSON: {error}", remedy="Quote it for the shell: '...'") from None
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
            remedy="Give a JSON value that does",
        ) from None
