"""The measures: what each one is worth today, and its limit."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tests.house import words
from tests.house.habits import patched_globals, privates, written_from_outside
from tests.house.source import ROOT, House, Module

MAXIMA = Path(__file__).with_name("maxima.toml")
_EXECUTION = "ninelives.engine.run.execution"


class Measure(Struct, frozen=True):
    """A number that is to be small, its limit, and what it is made of."""

    name: str
    value: int
    limit: int
    parts: list[str] = []

    @property
    def is_ok(self) -> bool:
        """Whether it keeps its limit."""
        return self.value <= self.limit


def read_source(house: House) -> Iterator[Measure]:
    """Yield what is measured by reading."""
    packages = house.packages().most_common()
    stores = [(name, count) for name, count in packages if name.startswith("ninelives.stores.")]
    others = [one for one in packages if one not in stores]
    for kind, found, limit in (("a package", others, 13), ("a store's package", stores, 16)):
        over = [f"{name}: {count}" for name, count in found if count > limit]
        yield Measure(f"most modules in {kind}", found[0][1], limit, over)
    cycles = house.cycles()
    yield _listed("import cycles, lazy and type-only imports counted", 0, [" ".join(one) for one in cycles])
    yield Measure("modules in the largest import cycle", max(map(len, cycles), default=0), 0)
    yield _listed("lazy or type-only imports inside engine", 0, house.late_edges("ninelives.engine"))
    yield _listed("class names defined in several modules", 10, house.shared_class_names())
    modules = house.modules.values()
    yield _listed("modules over 500 lines", 0, [one.name for one in modules if one.lines > 500])
    yield _listed("functions over 70 lines", 0, house.long_functions(70))
    facades = [one for one in modules if one.package in dict(stores) and one.name.endswith(".store")]
    yield Measure("lines of the four store classes' modules", sum(one.lines for one in facades), 600)
    yield Measure("lines of Python in src", sum(one.lines for one in modules), 40_000)
    yield Measure(
        "lines of code: neither empty, comment nor docstring", sum(map(code_lines, modules)), 35_000
    )
    yield _spoken("names", words.names(house))
    yield _spoken("docstrings, comments and messages", words.prose(house))
    yield _listed("globals of our modules patched in src", 0, patched_globals(house))
    yield _listed("private attributes of other packages used", 0, privates(house)[0])
    written = written_from_outside(house, "execution", _EXECUTION)
    yield _listed("attributes of Execution written by other modules", 0, written)


def code_lines(module: Module) -> int:
    """Count the lines of a module that are neither empty nor a comment nor of a docstring."""
    said = set[int]()
    for node in (module.tree, *module.nodes):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                said |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(module.text.splitlines(), 1)
    return sum(number not in said and not re.match(r"\s*(#|$)", line) for number, line in lines)


def _spoken(where: str, found: dict[str, list[str]]) -> Measure:
    counts = sorted(((len(uses), word) for word, uses in found.items()), reverse=True)
    parts = [f"{word}: {count}" for count, word in counts]
    return Measure(f"words to avoid in {where}", sum(count for count, _ in counts), 0, parts)


def _listed(name: str, limit: int, parts: list[str]) -> Measure:
    return Measure(name, len(parts), limit, parts)


_WALKS = {
    "strict": ("a strict step, first execution", {"modules": 18, "switches": 40, "calls": 80}),
    "replay": ("a strict step, on replay", {"modules": 9, "switches": 18, "calls": 30}),
    "keyed": (
        "a keyed non-resumable action",
        {"modules": 26, "switches": 150, "calls": 300, "store calls": 2, "threads": 2},
    ),
    "idle": ("an idle worker beside 300 keyed actions", {"claims": 10}),
}


def walk() -> Iterator[Measure]:
    """Yield what is measured by running tiny programs."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.house.walks"], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=300
    )
    found = json.loads(ran.stdout)
    for walked, (name, limits) in _WALKS.items():
        for what, limit in limits.items():
            yield Measure(f"{name}: {what}", found[walked][what], limit)


def read_maxima(table: str) -> dict[str, int]:
    """Return what each measure may be at most."""
    return {str(name): int(most) for name, most in tomllib.loads(MAXIMA.read_text("utf-8"))[table].items()}


def lower_maxima(measures: list[Measure]) -> None:
    """Write down what has become smaller; what has become larger stays as it was."""
    maxima, (kept, title, _) = read_maxima("source"), MAXIMA.read_text("utf-8").partition("[source]\n")
    lower = {one.name: min(one.value, maxima[one.name]) for one in measures if one.name in maxima}
    MAXIMA.write_text(kept + title + "".join(f'"{name}" = {most}\n' for name, most in lower.items()))
