"""Escape text from runs: nothing in it can control a terminal or forge a line of output.

Ids, names and values come from models and strangers. They reach a screen or a log only without control
characters, line breaks, escape sequences, bidirectional marks and lone surrogates.
"""

from __future__ import annotations

import msgspec


def shown(text: str) -> str:
    """Return the text with everything unprintable escaped, as Python would write it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shortened(text: str, characters: int) -> str:
    """Return the text escaped and cut to about that many characters."""
    seen = shown(text[: characters + 1])
    return seen if len(text) <= characters else f"{seen[:characters]}…"


def json_text(data: bytes, *, pretty: bool = False) -> str:
    """Return JSON as text with unprintable characters escaped; it parses to the same value."""
    text = (msgspec.json.format(data, indent=2) if pretty else data).decode()
    if text.isprintable():
        return text
    # Outside strings, JSON has nothing unprintable but the line breaks that we put there.
    return "".join(one if one.isprintable() or one == "\n" else _json_escape(one) for one in text)


def ascii_json(text: str) -> str:
    """Return JSON with every character beyond ASCII escaped; it parses to the same value."""
    return "".join(one if one.isascii() else _json_escape(one) for one in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
