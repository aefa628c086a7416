"""Habits to lose: words of the old dialect, privates of other packages, patched globals."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.house.source import House, Module

DIALECT = """
    whoever, whereabouts, how-manieth, befall, befalls, befell, anew, for ever, newsroom, told, tell, tells,
    telling, hear, hears, heard, mend, mends, mended, heed, heeds, thereof, therein, thereupon, hitherto,
    cradle, keyring, outlet, chronicle, lent, kin, strays, facade
"""
"""Words that say in a private language what plain ones say: report, notify, poll, again, happen, repair."""

ASYNCIO = {
    "_ready", "_scheduled", "_selector", "_context", "_cancelled", "_stopping", "_callback",
    "_default_executor", "_unregister_task", "_log_destroy_pending", "_task",
}  # fmt: skip
"""Privates of asyncio, some of which share their names with ours."""

_PATTERN = re.compile(rf"\b({'|'.join(re.escape(word.strip()) for word in DIALECT.split(','))})\b")
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def dialect(house: House) -> Counter[str]:
    """Count the words of the old dialect in identifiers and docstrings."""
    texts = (_said(node) for module in house.modules.values() for node in module.nodes)
    return Counter(word for text in texts for word in _PATTERN.findall(text))


def _said(node: ast.AST) -> str:
    """Return a docstring, or an identifier that is given here, as words in lower case."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).lower().split())
    name = node.arg if isinstance(node, ast.arg) else _given(node)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


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
