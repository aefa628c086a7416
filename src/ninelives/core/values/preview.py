"""Previews: a few characters of each argument, for people who must understand a divergence."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

CHARACTERS: Final = 60
_TEXT: Final = msgspec.json.Encoder().encode
_ARGUMENTS: Final = msgspec.json.Decoder(dict[str, Raw]).decode


def preview(arguments: bytes) -> dict[str, str]:
    """Return a few characters of each of the canonical arguments."""
    shown = {}
    for name, raw in _ARGUMENTS(arguments).items():
        text = bytes(raw).decode()
        shown[name] = text if len(text) <= CHARACTERS else cut(text, len(text))
    return shown


def preview_plain(arguments: dict[str, int | str]) -> dict[str, str]:
    """Return the same of small numbers and plain text, without their canonical form."""
    shown = {}
    for name, value in arguments.items():
        if value.__class__ is int:
            shown[name] = str(value)
        else:
            text = _TEXT(value).decode()
            shown[name] = text if len(text) <= CHARACTERS else cut(text, len(text))
    return shown


def cut(text: str, length: int) -> str:
    """Return the beginning of a text that is longer than what is shown, and its length."""
    return f"{text[:CHARACTERS]}… ({length})"
