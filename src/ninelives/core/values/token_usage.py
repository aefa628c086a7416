"""Token usage and model name, as found in a model's answer in any of the usual forms."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

_PARTS = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_DEPTH = 3
_MARK = b"_tokens"
_MODEL_CHARACTERS = 100


class Usage(Struct, frozen=True, omit_defaults=True):
    """The cost that an answer reports: tokens read and written, and the model."""

    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""


def tokens_in(value: bytes) -> int:
    """Return the tokens that an encoded value reports; 0 when it reports none."""
    if _MARK not in value:
        return 0
    try:
        return _tokens(msgspec.json.decode(value), _DEPTH)
    except msgspec.DecodeError:
        return 0


def usage_in(value: bytes) -> Usage | None:
    """Return the usage that an encoded value reports; None when it reports none."""
    if _MARK not in value:
        return None
    try:
        tree = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    read, written = _parts(tree, _DEPTH)
    if not (read or written):
        return None
    model = tree.get("model") if isinstance(tree, dict) else None
    return Usage(read, written, model[:_MODEL_CHARACTERS] if isinstance(model, str) else "")


def _tokens(value: Any, depth: int) -> int:
    if isinstance(value, list):
        return sum(_tokens(one, depth - 1) for one in value) if depth else 0
    if not isinstance(value, dict):
        return 0
    total = value.get("total_tokens")
    if isinstance(total, int):
        return total
    for names in _PARTS:
        parts = [part for name in names if isinstance(part := value.get(name), int)]
        if len(parts) == len(names):
            return sum(parts)
    return sum(_tokens(one, depth - 1) for one in value.values()) if depth else 0


def _parts(value: Any, depth: int) -> tuple[int, int]:
    """Return the tokens read and written that a decoded value reports."""
    if isinstance(value, dict):
        for read, written in _PARTS:
            first, second = value.get(read), value.get(written)
            if type(first) is int and type(second) is int and 0 <= first < 2**53 and 0 <= second < 2**53:
                return first, second
        value = list(value.values())
    if not isinstance(value, list) or not depth:
        return 0, 0
    found = [_parts(one, depth - 1) for one in value]
    return sum(one[0] for one in found), sum(one[1] for one in found)
