"""Which steps the code of a step calls, as far as it shows that without being executed.

Read from the code that is loaded, not from its file, which may have changed since. Calls through other
objects (`self.tools[name](...)`) are not seen; the names of a step that is only passed on are no calls.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ninelives.engine.spec.registry import Step

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NULL = "PUSH_NULL"  # CPython pushes it next to a callable, or marks the load itself


@cache
def steps_called(function: Callable[..., Any]) -> tuple[Step, ...]:
    """Return the steps that a function calls, directly or through functions of its package and steps."""
    found: dict[str, Step] = {}
    seen: set[CodeType] = set()
    first = inspect.unwrap(function)
    waiting: list[Any] = [first]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one.__code__ in seen:
            continue
        seen.add(one.__code__)
        for called in _called(one):
            step = getattr(called, "__ninelives__", None)
            if isinstance(step, Step):
                found[step.name] = step
                waiting.append(inspect.unwrap(step.function))
            elif _package(called) == _package(first):
                waiting.append(called)
    return tuple(found.values())


def _package(function: Any) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]


def _called(function: FunctionType) -> Iterator[Any]:
    """Yield what a function calls by a name that is known without executing it."""
    known = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        known.pop(name, None)
        try:
            known[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for names in _names_called(function.__code__):
        value = known.get(names[0])
        for name in names[1:]:
            # Only modules and classes: reading another attribute could execute code of the user.
            value = vars(value).get(name) if isinstance(value, ModuleType | type) else None
        if value is not None:
            yield value


def _names_called(code: CodeType) -> Iterator[list[str]]:
    """Yield the names, each with its attributes, that a code object and those inside it call."""
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        if instruction.opname not in _LOADS:
            continue
        names, last, after = [str(instruction.argval)], instruction, at + 1
        while after < len(instructions) and instructions[after].opname in _ATTRIBUTES:
            last = instructions[after]
            names.append(str(last.argval))
            after += 1
        is_marked = "NULL" in last.argrepr or last.opname == "LOAD_METHOD"
        beside = (
            instructions[at - 1] if at else None,
            instructions[after] if after < len(instructions) else None,
        )
        if is_marked or any(one is not None and one.opname == _NULL for one in beside):
            yield names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_called(inner)
