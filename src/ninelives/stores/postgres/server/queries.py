"""The statements of `queries.sql`, by name, for one schema.

A `-- part:` section is text that statements share. The schema's name is the only other text that is inserted;
it is checked where the URL is parsed, and quoted here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from ninelives.stores.postgres.server import binary
from ninelives.stores.shared import maintenance

Values = Sequence[Any] | dict[str, Any]
_SECTION = re.compile(r"^-- (name|part): (\w+)(?: \(([^)]*)\))?\n", re.MULTILINE)


class Statement(Struct, frozen=True):
    """A statement: its text, and the types and encoders of its values."""

    name: bytes
    text: bytes
    names: tuple[str, ...]
    types: tuple[int, ...]
    encoders: tuple[binary.Encoder, ...]
    formats: tuple[int, ...]

    def bound(self, values: Values) -> list[bytes | None]:
        """Return the values in binary, in the statement's order."""
        given = [values[name] for name in self.names] if isinstance(values, dict) else values
        return [
            None if value is None else encode(value)
            for encode, value in zip(self.encoders, given, strict=True)
        ]


@cache
def statements(schema: str) -> Mapping[str, Statement]:
    """Return all statements for a schema. Raises ValueError when two have one name."""
    text = files(__package__).joinpath("queries.sql").read_text(encoding="utf-8")
    _, *pieces = _SECTION.split(text)
    parts: dict[str, str] = {}
    found: dict[str, Statement] = {}
    for kind, name, bound, body in zip(*(pieces[index::4] for index in range(4)), strict=True):
        if name in parts or name in found:
            raise ValueError(f"two statements are called {name}")
        if kind == "part":
            parts[name] = body.strip()
        else:
            # Later parts may contain earlier ones, so they are filled in first.
            for part, shared in reversed(parts.items()):
                body = re.sub(rf":{part}\b", shared.replace("\\", r"\\"), body)  # noqa: PLW2901
            found[name] = _statement(name, bound or "", body.strip(), schema)
    return MappingProxyType(found)


def _statement(name: str, bound: str, body: str, schema: str) -> Statement:
    """Make a statement from its text and the types of its values: `bigint, text[]` or `after bigint, …`."""
    given = [one.replace("--", "").split() for one in bound.split(",")] if bound else []
    names = tuple(one[0] for one in given if len(one) == 2)
    for number, known in enumerate(names, 1):
        body = re.sub(rf"\${known}\b", f"${number}", body)
    types = [one[-1] for one in given]
    return Statement(
        name=name.encode(),
        text=in_schema(body, schema),
        names=names,
        types=tuple(binary.OIDS[one] for one in types),
        encoders=tuple(binary.ENCODERS[one] for one in types),
        # Binary for all: text would cost both sides a conversion.
        formats=(1,) * len(types),
    )


def in_schema(text: str, schema: str) -> bytes:
    """Return SQL with `:schema` replaced by the schema's name."""
    return re.sub(r":schema\b", f'"{schema}"', text).encode()


def migrations() -> tuple[str, ...]:
    """Return the migrations in order; the n-th makes version n."""
    return maintenance.migrations(__package__)
