"""The keys of this process: the first seals, all of them open.

A key is 32 random bytes in base64. Its id, which every sealed value names, is derived from it, so two
processes never give one id to different keys. Nothing here is durable.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ninelives.core.errors import UsageError

KEY_BYTES = 32
VARIABLES = ("NINELIVES_KEYS", "NINELIVES_KEY")
MAKE_ONE = "Make one with: openssl rand -base64 32"
Keys = str | bytes | Sequence[str | bytes]
Encrypt = Keys | Callable[[], Keys]


class KeyRing:
    """Keys by id; the newest first."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self.newest = next(iter(self._keys), "")
        self._derived: dict[tuple[str, str], tuple[Any, bytes]] = {}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the keys, the newest first."""
        return tuple(self._keys)

    def beginning_with(self, key: str) -> KeyRing:
        """Return the same keys, of which another one seals."""
        return KeyRing([self._keys[key], *self._keys.values()])

    def cipher(self, key: str, scope: str) -> tuple[Any, bytes] | None:
        """Return the cipher of a key for one scope (a run), and the key of its nonces; None without the key.

        Each scope has keys of its own: so no key ever seals more than the bodies of one run.
        """
        known = self._derived.get((key, scope))
        if known is None:
            if key not in self._keys:
                return None
            if len(self._derived) > 10_000:
                self._derived.clear()
            own, nonces = (
                hmac.digest(self._keys[key], b"ninelives-%b:%b" % (what, scope.encode()), "sha256")
                for what in (b"body", b"nonce")
            )
            known = self._derived[key, scope] = _aead()(own), nonces
        return known

    def derived(self, what: str) -> bytes:
        """Return a key for another use than sealing, from the newest key; empty without keys."""
        if not self.newest:
            return b""
        return hmac.digest(self._keys[self.newest], b"ninelives-derived:" + what.encode(), "sha256")


def key_id(key: bytes) -> str:
    """Return the id of a key: it says nothing about the key."""
    return hashlib.sha256(b"ninelives-key-id:" + key).hexdigest()[:12]


def ring_of(encrypt: Encrypt | bool | None, environment: Mapping[str, str] | None = None) -> KeyRing | None:
    """Return the keys that `encrypt=` or the environment gives; None when neither does.

    True requires keys in the environment. Raises UsageError.
    """
    if callable(encrypt):
        return _ring(encrypt(), "encrypt=")
    if encrypt is not None and not isinstance(encrypt, bool):
        return _ring(encrypt, "encrypt=")
    if encrypt is False:
        return None
    found = environment if environment is not None else os.environ
    for name in VARIABLES:
        if found.get(name, "").strip():
            return _ring(found[name], f"${name}")
    if encrypt:
        raise UsageError(
            "encrypt=True, and neither $NINELIVES_KEYS nor $NINELIVES_KEY is set", remedy=MAKE_ONE
        )
    return None


def _ring(given: Keys, where: str) -> KeyRing:
    parts: Sequence[str | bytes] = [given] if isinstance(given, str | bytes) else given
    keys: list[bytes] = []
    for part in parts:
        keys += [part] if isinstance(part, bytes) else [_decoded(one, where) for one in part.split(",")]
    if not keys or not all(type(key) is bytes and len(key) == KEY_BYTES for key in keys):
        raise UsageError(f"{where} has no key, or one that is not {KEY_BYTES} bytes long", remedy=MAKE_ONE)
    _aead()
    return KeyRing(keys)


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"{where} has a key that is not base64", remedy=MAKE_ONE) from None


def _aead() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise UsageError(
            f"encryption needs cryptography: {error}", remedy="pip install 'ninelives[encrypt]'"
        ) from error
    return AESGCM
