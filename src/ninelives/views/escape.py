"""Text from runs, made fit to be seen: what could steer a terminal or forge a line is escaped.

Ids, names and values come from models and strangers. Nothing of theirs reaches a screen or a log raw:
no control characters, line breaks, escape sequences, marks that turn text around, or lone surrogates.
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
    """Return JSON as text in which unprintable characters are escaped; it means the same as before."""
    text = (msgspec.json.format(data, indent=2) if pretty else data).decode()
    if text.isprintable():
        return text
    # Outside of strings JSON has nothing unprintable but the line breaks that we have put there.
    return "".join(one if one.isprintable() or one == "\n" else _json_escape(one) for one in text)


def ascii_json(text: str) -> str:
    """Return JSON with every character beyond ASCII escaped; it means the same as before."""
    return "".join(one if one.isascii() else _json_escape(one) for one in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
