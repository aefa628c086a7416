"""The statements of `queries.sql`, by name, for one schema.

A `-- part:` section is text that statements share. The schema's name is the only thing ever pasted in; it
is checked where the URL is read, and quoted here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_SECTION = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)


@cache
def statements(schema: str) -> Mapping[str, bytes]:
    """Return all statements, to be run on that schema. Raises ValueError when two have one name."""
    text = files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _SECTION.split(text)
    parts: dict[str, str] = {}
    found: dict[str, bytes] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if name in parts or name in found:
            raise ValueError(f"two statements are called {name}")
        if kind == "part":
            parts[name] = body.strip()
        else:
            for part, shared in reversed(parts.items()):
                body = re.sub(rf":{part}\b", lambda _, shared=shared: shared, body)  # noqa: PLW2901
            found[name] = in_schema(body.strip(), schema)
    return MappingProxyType(found)


def in_schema(text: str, schema: str) -> bytes:
    """Return SQL that names its tables `:schema.…` for one schema."""
    return re.sub(r":schema\b", f'"{schema}"', text).encode()


@cache
def migrations() -> tuple[str, ...]:
    """Return the migrations in order; the n-th makes version n."""
    folder = files(__package__).joinpath("migrations")
    return tuple(
        file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    )
