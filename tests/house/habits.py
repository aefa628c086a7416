"""Habits to lose: privates of other packages, patched globals."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.house.source import House, Module

ASYNCIO = {
    "_ready", "_scheduled", "_selector", "_context", "_cancelled", "_stopping", "_callback",
    "_default_executor", "_unregister_task", "_log_destroy_pending", "_task",
}  # fmt: skip
"""Privates of asyncio, some of which share their names with ours."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _given(node: ast.AST) -> str:
    """Return the name that a node gives to something; an attribute counts only on `self` or `cls`."""
    if isinstance(node, _Function):
        return node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
        return node.attr
    return ""


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _used(module: Module) -> Iterator[str]:
    """Yield the private attributes of something else than `self`, and private names that are imported."""
    for node in module.nodes:
        names = [node.attr] if isinstance(node, ast.Attribute) and not _is_own(node.value) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if re.match(r"_(?!exit|getframe|replace)[a-z]", name))


def privates(house: House) -> tuple[list[str], list[str]]:
    """Return the privates of our other packages that are used, and those of libraries, by module."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module in house.modules.values():
        for node in module.nodes:
            homes[_given(node)].add(module.package)
    ours, libraries = [], []
    for module in house.modules.values():
        for name in sorted(set(_used(module))):
            if name in ASYNCIO or not homes[name]:
                libraries.append(f"{module.name}: {name}")
            elif module.package not in homes[name]:
                ours.append(f"{module.name}: {name}")
    return ours, libraries


def written_from_outside(house: House, holder: str, home: str) -> list[str]:
    """Return the attributes of an object that other modules than its home write, by its usual name."""
    return sorted(
        {
            node.attr
            for module in house.modules.values()
            for node in module.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and module.name != home
            if re.fullmatch(rf"(.+\.)?_?{holder}", ast.unparse(node.value))
        }
    )


def patched_globals(house: House) -> list[str]:
    """Return where names of our own modules and classes are replaced from outside."""
    found = []
    for module in house.modules.values():
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node, _ in module.imports
            for alias in node.names
            if f"{getattr(node, 'module', None) or alias.name}.".startswith("ninelives.")
        }
        for node in module.nodes:
            holder = _holder(node)
            if isinstance(holder, ast.Name) and holder.id in imported:
                found.append(f"{module.name}: {ast.unparse(node)}")
    return found


def _holder(node: ast.AST) -> ast.expr | None:
    """Return whose name is set: by `x.name = `, `vars(x)[name] = ` or `setattr(x, name, …)`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
        return node.args[0]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.value
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        inner = node.value
        return inner.args[0] if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "vars" else None
    return None
