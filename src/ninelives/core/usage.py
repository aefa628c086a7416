"""How many tokens a model's answer says it cost, in whichever of the usual forms it says so."""

from __future__ import annotations

from typing import Any

import msgspec

_PARTS = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_DEPTH = 3


def tokens_in(value: bytes) -> int:
    """Return the tokens that an encoded value speaks of; 0 when it does not."""
    if b"_tokens" not in value:
        return 0
    try:
        return _tokens(msgspec.json.decode(value), _DEPTH)
    except msgspec.DecodeError:
        return 0


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
