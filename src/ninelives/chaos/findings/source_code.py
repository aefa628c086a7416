"""Read the user's source around a line: is it clean-up code, and which expressions there vary.

Files are read as they are now. A file that cannot be read or parsed gives no information.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

_EVERYTHING = frozenset(
    {"BaseException", "CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}
)
_EXITS = frozenset({"__exit__", "__aexit__", "__del__"})
_REMEDIES = {
    "time": "nl.now()",
    "datetime": "nl.now()",
    "date": "nl.now()",
    "random": "nl.random()",
    "secrets": "nl.random()",
    "numpy": "nl.random()",
    "uuid": "nl.uuid()",
    "os": "a step",
    "set": "sorted(...)",
}
_CALLS = frozenset(
    {
        "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
        "time.localtime", "time.gmtime", "time.ctime", "time.strftime",
        "datetime.now", "datetime.utcnow", "datetime.today", "datetime.datetime.now",
        "datetime.datetime.utcnow", "datetime.datetime.today", "date.today", "datetime.date.today",
        "uuid.uuid1", "uuid.uuid4", "uuid1", "uuid4", "os.urandom", "os.getpid", "perf_counter", "monotonic",
    }
)  # fmt: skip
_MODULES = ("random.", "secrets.", "numpy.random.", "np.random.")


class Suspect(Struct, frozen=True):
    """An expression that gives a different value in each process, and what to use instead."""

    line: int
    text: str
    remedy: str


def is_cleanup(location: str) -> bool:
    """Return whether a line is in a `finally`, an `__exit__`, or an `except` that catches process exit."""
    file, line = split(location)
    return any(
        one.lineno <= line <= (one.end_lineno or one.lineno)
        for node in ast.walk(_parsed(file))
        for one in _cleaning(node)
    )


def _cleaning(node: ast.AST) -> list[ast.stmt]:
    """Return the parts of a statement that also run when the process is asked to stop."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.body if node.name in _EXITS else []
    if not isinstance(node, ast.Try):
        return []
    acting = list(node.finalbody)
    for handler in node.handlers:
        if handler.type is None or _names(handler.type) & _EVERYTHING:
            acting += handler.body
    return acting


def suspects(location: str) -> list[Suspect]:
    """Return the varying expressions in the function around a line, nearest first.

    Those in functions of the same file that it calls follow. A step's body may vary, so it has none.
    """
    file, line = split(location)
    tree = _parsed(file)
    scope = _function(tree, line)
    if _is_step(scope):
        return []
    called = {ast.unparse(node.func) for node in ast.walk(scope) if isinstance(node, ast.Call)}
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inner = [one for node in functions if node.name in called for one in _in(node)]
    near = sorted(_in(scope), key=lambda one: (one.line > line, abs(line - one.line)))
    return near + [one for one in inner if one not in near]


def _in(scope: ast.AST) -> list[Suspect]:
    found = {suspect for node in _run_code(scope) if (suspect := _suspect(node)) is not None}
    return sorted(found, key=lambda one: one.line)


def _run_code(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run again on replay: all but those of steps."""
    if not _is_step(scope):
        yield scope
        for node in ast.iter_child_nodes(scope):
            yield from _run_code(node)


def _is_step(node: ast.AST) -> bool:
    """Return whether a node is a function whose result is recorded."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        ast.unparse(one).partition("(")[0].rpartition(".")[2] in ("action", "decision")
        for one in node.decorator_list
    )


def caller(location: str, agent: str, ordinal: int = 0) -> str:
    """Return FILE:LINE where the run's code names the step around `location`; outside steps, `location`.

    A step that is called as a task only reports its own line, so the call is searched: first in the agent,
    then in its file, then in the step's file. `ordinal` picks one of several calls. Falls back to the agent.
    """
    file, line = split(location)
    step = _function(_parsed(file), line)
    if not isinstance(step, ast.FunctionDef | ast.AsyncFunctionDef) or not _is_step(step):
        return location
    home, declared = split(agent)
    scopes = [
        (home, _function(_parsed(home), declared, is_declared=True)),
        (home, _parsed(home)),
        (file, _parsed(file)),
    ]
    for where, scope in scopes:
        if lines := _naming(scope, step.name):
            return f"{where}:{lines[ordinal if ordinal < len(lines) else 0]}"
    return agent


def _naming(scope: ast.AST, name: str) -> list[int]:
    return sorted(
        node.lineno
        for node in _run_code(scope)
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
    )


def return_line(location: str) -> str:
    """Return FILE:LINE of a function's only `return`, or else the given FILE:LINE."""
    file, line = split(location)
    function = _function(_parsed(file), line, is_declared=True)
    returns = [node.lineno for node in _own(function) if isinstance(node, ast.Return)]
    return f"{file}:{returns[0]}" if len(returns) == 1 else location


def code(location: str) -> str:
    """Return the text of a line."""
    file, line = split(location)
    lines = _text(file).splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def split(location: str) -> tuple[str, int]:
    """Split FILE:LINE into file and line; the line is 0 if there is none."""
    file, _, line = location.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (location, 0)


def _suspect(node: ast.AST) -> Suspect | None:
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name in _CALLS or name.startswith(_MODULES):
            root = name.split(".", maxsplit=1)[0].rstrip("14")
            return Suspect(node.lineno, f"{name}()", _REMEDIES.get(root, "nl.now()"))
        if name in ("list", "tuple", "join", "set", "frozenset") or name.endswith(".join"):
            return _set_order(node)
        if name.rpartition(".")[2] == "as_completed":
            return Suspect(node.lineno, f"the order of {name}()", "nl.gather()")
    if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
        return Suspect(node.iter.lineno, "the order of a set", "sorted(...)")
    return None


def _set_order(node: ast.Call) -> Suspect | None:
    if ast.unparse(node.func) in ("set", "frozenset"):
        return Suspect(node.lineno, "the order of a set", "sorted(...)")
    if node.args and _is_set(node.args[0]):
        return Suspect(node.lineno, "the order of a set", "sorted(...)")
    return None


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset")


def _names(node: ast.expr) -> set[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {ast.unparse(part).rpartition(".")[2] for part in parts}


def _function(tree: ast.Module, line: int, *, is_declared: bool = False) -> ast.AST:
    """Return the innermost function around a line, or the module."""
    found: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= line <= (node.end_lineno or first):
                found = node
                if is_declared and line in (first, node.lineno):
                    return node
    return found


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _own(node)


@lru_cache(maxsize=256)
def _parsed(file: str) -> ast.Module:
    try:
        return ast.parse(_text(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@lru_cache(maxsize=256)
def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
