"""The statements of `queries.sql`, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType


def load(text: str) -> Mapping[str, str]:
    """Split a file of `-- name: …` sections.

    Raises ValueError when two sections have one name.
    """
    found: dict[str, str] = {}
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    for name, statement in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"two statements are called {name}")
        found[name] = statement.strip()
    return MappingProxyType(found)


SQL = load(files(__package__).joinpath("queries.sql").read_text(encoding="utf-8"))
