"""The statements of `queries.sql`, by name.

A statement that changes a row computes the row's check again from all its columns (see checks.py). So that no
column can be forgotten, they are listed once, in the statement that inserts the row. `@items` stands for that
list; `@items(state = 'closed')` stands for the same list with new values in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_CHECKS = ("check", "hot", "packed")  # a blob's digest covers `packed`
_APPENDED = (
    *("head", "length", "changed_ms", "effect_length"),
    *("steps", "tokens_in", "tokens_out", "progress", "last_error", "retrying"),
)
"""The columns that an append changes: a run's first check (`check`) leaves them out."""
_HOT = ("number", "epoch", "state", *_APPENDED)
"""The columns of a run's second check (`hot`): those that an append changes, and those that fence it."""

_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_INSERT = re.compile(r"INSERT (?:OR IGNORE )?INTO (\w+) \(([^)]*)\)")
# Only plain parameters: a statement whose values have names cannot be repeated for many rows.
_VALUES = re.compile(r"VALUES (\([?, ]+\))")
_LIST = re.compile(r"@(\w+)(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?")


def load(text: str) -> Mapping[str, str]:
    """Split a file into its `-- name: …` sections, and fill in the lists of columns.

    Raises ValueError when two sections have one name.
    """
    found: dict[str, str] = {}
    _, *parts = _SECTION.split(text)
    lists = _lists(text)
    for name, statement in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"two statements are called {name}")
        found[name] = _LIST.sub(lambda mark: _filled(lists[mark[1]], mark[2]), statement.strip())
    return MappingProxyType(found)


def _lists(text: str) -> dict[str, tuple[str, ...]]:
    lists = {}
    for table, columns in _INSERT.findall(text):
        names = (name.strip().strip('"') for name in columns.split(","))
        lists[table] = tuple(name for name in names if name not in _CHECKS)
    if "runs" in lists:
        lists["run"] = lists["runs"]
        lists["hot"] = _HOT
        # `@runs` is what `check` covers: an append must leave it as it is.
        lists["runs"] = tuple(name for name in lists["runs"] if name not in _APPENDED)
    return lists


def _filled(columns: tuple[str, ...], changes: str | None) -> str:
    new = dict(part.split(" = ", 1) for part in re.split(r",\s+(?=\w+ = )", changes)) if changes else {}
    if not new.keys() <= set(columns):
        raise ValueError(f"no such columns: {sorted(new.keys() - set(columns))}")
    return ", ".join(new.get(name, f'"{name}"') for name in columns)


_TEXT = files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
SQL = load(_TEXT)
COLUMNS = MappingProxyType(_lists(_TEXT))
"""By table, the columns that its rows' check covers, in order; `run` has all columns of a run."""


@cache
def for_rows(name: str, count: int) -> str:
    """Return a statement with its one list of values, `VALUES (?, …)`, repeated for `count` rows."""
    return _VALUES.sub(lambda row: f"VALUES {', '.join([row[1]] * count)}", SQL[name])
