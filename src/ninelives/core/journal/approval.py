"""Declared approvals, and the digest that binds a person's yes to exactly one call."""

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
    """Which person must approve an action, and when.

    `when` is called with the action's arguments and returns whether a person must approve. After `timeout`
    seconds without an answer, `default` applies: no, unless you set it to True.
    """

    when: Callable[..., object] | None = None
    to: str = ""
    timeout: float | None = None
    default: bool = False

    def is_needed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a person must approve a call with these arguments."""
        if self.when is None:
            return True
        found = self.when(*args, **kwargs)
        if isawaitable(found):
            if isinstance(found, Coroutine):
                found.close()
            raise UsageError(
                "approval= returned an awaitable, not a bool", remedy="Give a plain (not async) predicate"
            )
        return bool(found)


def declared(approval: object) -> Approval | None:
    """Return what `approval=` declares; None if no approval is needed. Raises UsageError."""
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
        f"approval={approval!r}", remedy="Give True, a predicate over the arguments, or an nl.Approval"
    )


def digest(action: str, key: str, arguments: bytes, *by: str) -> bytes:
    """Return the digest that an answer is bound to: of the action, its key, and all its arguments.

    `by` names what asks, if it is not the step's own declaration: the policy's digest, and which of
    several requests this is.
    """
    return blake2b(_ENCODE([action, key, Raw(arguments), *by]), digest_size=16).digest()


def shown(arguments: bytes) -> dict[str, Raw]:
    """Return canonical arguments for people: without type tags, and cut to what an item can hold."""
    found = {}
    for name, value in msgspec.json.decode(arguments).items():
        text = _ENCODE(_untagged(value))
        if len(text) > _SHOWN_BYTES:
            text = _ENCODE(f"{text[:1000].decode(errors='ignore')}… ({len(text)} bytes)")
        found[name] = Raw(text)
    return found if sum(map(len, map(bytes, found.values()))) <= _SHOWN_BYTES else _cut(found)


def _cut(values: dict[str, Raw]) -> dict[str, Raw]:
    most = max(60, _SHOWN_BYTES // (8 * len(values)))
    return {
        name: value
        if len(bytes(value)) <= most
        else Raw(_ENCODE(f"{bytes(value)[:most].decode(errors='ignore')}… ({len(bytes(value))} bytes)"))
        for name, value in values.items()
    }


def _untagged(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_untagged(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if TAG in tree:
        return _untagged(tree.get("v"))
    return {name: _untagged(item) for name, item in tree.items()}
