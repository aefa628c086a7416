"""Configuration files in TOML. Anything in one that is unknown or of another type is an error at the start.

An error names the file and the path inside it, such as `channel[1].kinds[0]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ninelives.core.errors import UsageError

_WORDS: Mapping[object, str] = {
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "a table",
    datetime: "a time",
}


def read_toml(path: Path, remedy: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file and what they say. Raises UsageError."""
    try:
        content = path.read_bytes()
        return content, parse_toml(content.decode(), str(path), remedy)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy="Name the file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", remedy=remedy) from None


def parse_toml(text: str, source: str, remedy: str) -> dict[str, Any]:
    """Return what a text in TOML says. Raises UsageError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not TOML: {error}", remedy=remedy) from None
    except (RecursionError, ValueError) as error:  # tables without end, numbers of a million digits
        raise UsageError(f"{source} is not TOML: {type(error).__name__}", remedy="Make it simpler") from None


class FieldReader:
    """Checks the fields of a file's tables."""

    def __init__(self, file: str, remedy: str) -> None:
        self._file, self._remedy = file, remedy

    def wrong(self, path: str, what: str, remedy: str = "") -> UsageError:
        """Return the error for a fault at a path inside the file."""
        return UsageError(f"{self._file}: {path}: {what}", remedy=remedy or self._remedy)

    def fields(self, table: object, known: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return a table that has no other fields than those known, of their types. Raises UsageError."""
        if not isinstance(table, dict):
            raise self.wrong(path, "it is not a table")
        for field, value in table.items():
            here = f"{path}.{field}" if path else field
            if field not in known:
                raise self.wrong(here, "there is no such field", f"Use {', '.join(known)}")
            if not isinstance(value, known[field]):
                raise self.wrong(here, f"it is not {_WORDS.get(known[field], 'of its type')}")
        return table
