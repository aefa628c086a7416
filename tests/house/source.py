"""The source as data: modules, who imports whom, and which of them form a cycle.

Every import counts, wherever it stands: at the top, in a function, or under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
LOAD, LAZY, TYPES = "at load", "in a function", "for types"


class Module(Struct, frozen=True):
    """One file: its dotted name, the package that it lies in, and what it says."""

    name: str
    package: str
    lines: int
    text: str
    tree: ast.Module
    nodes: list[ast.AST]
    imports: list[tuple[ast.Import | ast.ImportFrom, str]]


class Edge(Struct, frozen=True, order=True):
    """One module imports another."""

    importer: str
    imported: str
    when: str


class House:
    """All modules, and the imports between them."""

    def __init__(self, source: Path = ROOT / "src") -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted((source / "ninelives").rglob("*.py")):
            package, text = ".".join(path.relative_to(source).parts[:-1]), path.read_text(encoding="utf-8")
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            walked = list(_walk(tree := ast.parse(text), LOAD))
            imports = [(one, when) for one, when in walked if isinstance(one, ast.Import | ast.ImportFrom)]
            nodes = [node for node, _ in walked]
            self.modules[name] = Module(name, package, len(text.splitlines()), text, tree, nodes, imports)
        self.edges = sorted({edge for one in self.modules.values() for edge in self._imports(one)})

    def _imports(self, module: Module) -> Iterator[Edge]:
        for node, when in module.imports:
            targets = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                inner = [f"{node.module}.{name}" for name in targets]
                targets = [name if name in self.modules else node.module or "" for name in inner]
            for target in targets:
                if target in self.modules and target != module.name:
                    yield Edge(module.name, target, when)

    def packages(self) -> Counter[str]:
        """Count the modules of each package, besides its `__init__`."""
        return Counter(one.package for one in self.modules.values() if one.name != one.package)

    def cycles(self) -> list[list[str]]:
        """Return the groups of modules that import each other, the largest first."""
        after = defaultdict(set)
        for edge in self.edges:
            after[edge.importer].add(edge.imported)
        reached = {name: _reachable(name, after) for name in self.modules}
        groups = {
            tuple(sorted(other for other in reached[name] if name in reached[other]))
            for name in self.modules
            if name in reached[name]
        }
        return sorted(map(list, groups), key=lambda group: (-len(group), group))

    def late_edges(self, package: str) -> list[str]:
        """Return the imports inside a package that are made only lazily, or only for types."""
        inside = defaultdict(set)
        for edge in self.edges:
            if edge.importer.startswith(f"{package}.") and edge.imported.startswith(f"{package}."):
                inside[f"{edge.importer} → {edge.imported}"].add(edge.when)
        return [f"{pair} ({', '.join(sorted(when))})" for pair, when in inside.items() if LOAD not in when]

    def shared_class_names(self) -> list[str]:
        """Return the classes that are defined in several modules."""
        homes = Counter(
            node.name
            for module in self.modules.values()
            for node in module.tree.body
            if isinstance(node, ast.ClassDef)
        )
        return sorted(f"{name}: {times}" for name, times in homes.items() if times > 1)

    def long_functions(self, limit: int) -> list[str]:
        """Return the functions with more lines than the limit."""
        return [
            f"{module.name}.{node.name}"
            for module in self.modules.values()
            for node in module.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= limit
        ]


def _walk(node: ast.AST, when: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield all nodes, each with when it is carried out."""
    for child in ast.iter_child_nodes(node):
        inner = when
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = LAZY
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            inner = TYPES
        yield child, inner
        yield from _walk(child, inner)


def _reachable(start: str, after: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(after[start])
    while left:
        if (name := left.pop()) not in seen:
            seen.add(name)
            left.extend(after[name])
    return seen
