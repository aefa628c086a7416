"""Approvals as they are declared, and what a person says yes to: one digest of exactly that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from hashlib import blake2b
from inspect import isawaitable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import UsageError
from ninelives.core.values.scalars import TAG

_SHOWN_BYTES = 32 * 1024
_ENCODE = msgspec.json.Encoder().encode


class Approval(Struct, frozen=True, kw_only=True):
    """Who must say yes to an action, and when.

    `when` is asked with the action's arguments whether a person is needed at all. After `timeout` seconds
    without an answer, `default` is taken for it: no, unless you say otherwise.
    """

    when: Callable[..., object] | None = None
    to: str = ""
    timeout: float | None = None
    default: bool = False

    def is_needed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether a person has to say yes to a call with these arguments."""
        if self.when is None:
            return True
        found = self.when(*args, **kwargs)
        if isawaitable(found):
            if isinstance(found, Coroutine):
                found.close()
            raise UsageError(
                "approval= gave something to be awaited, not an answer", remedy="Give a plain predicate"
            )
        return bool(found)


def declared(approval: object) -> Approval | None:
    """Return what `approval=` declares; None when nobody is to be asked. Raises UsageError."""
    if approval is None or approval is False:
        return None
    if approval is True:
        return Approval()
    if isinstance(approval, Approval):
        if approval.timeout is not None and not approval.timeout > 0:
            raise UsageError(f"nl.Approval(timeout={approval.timeout!r})", remedy="Give seconds above 0")
        return approval
    if callable(approval):
        return Approval(when=approval)
    raise UsageError(
        f"approval={approval!r}", remedy="Say True, give a predicate over the arguments, or an nl.Approval"
    )


def digest(action: str, key: str, arguments: bytes) -> bytes:
    """Return what an answer is bound to: the action, its key, and all its arguments."""
    return blake2b(_ENCODE([action, key, Raw(arguments)]), digest_size=16).digest()


def shown(arguments: bytes) -> dict[str, Raw]:
    """Return canonical arguments as a person reads them: without tags, and not longer than an item holds."""
    told = {}
    for name, value in msgspec.json.decode(arguments).items():
        text = _ENCODE(_untagged(value))
        if len(text) > _SHOWN_BYTES:
            text = _ENCODE(f"{text[:1000].decode(errors='ignore')}… ({len(text)} bytes)")
        told[name] = Raw(text)
    return told if sum(map(len, map(bytes, told.values()))) <= _SHOWN_BYTES else _cut(told)


def _cut(told: dict[str, Raw]) -> dict[str, Raw]:
    most = max(60, _SHOWN_BYTES // (8 * len(told)))
    return {
        name: value
        if len(bytes(value)) <= most
        else Raw(_ENCODE(f"{bytes(value)[:most].decode(errors='ignore')}… ({len(bytes(value))} bytes)"))
        for name, value in told.items()
    }


def _untagged(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_untagged(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if TAG in tree:
        return _untagged(tree.get("v"))
    return {name: _untagged(item) for name, item in tree.items()}
