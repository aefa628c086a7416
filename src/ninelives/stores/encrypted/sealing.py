"""Sealed values: `{"$": "sealed", "of": …, "v": "KEY ID.NONCE AND CIPHERTEXT"}`, or the same in one text.

AES-256-GCM. The nonce is a keyed digest of what is sealed and of its context: the same value in the same
context gives the same bytes, so every write can be repeated; any other value or context gives another
nonce. The context (run, record, step, kind) is authenticated, so a sealed value cannot be used elsewhere.

No value of a user looks like this: a user's key "$" is always escaped (`core.values.containers`).
"""

from __future__ import annotations

import base64
import hmac

import msgspec

from ninelives.core.errors import KeyMissing
from ninelives.stores.encrypted.keys import KeyRing

NONCE_BYTES = 12
MARK = b'"$":"sealed"'
TEXT = "$sealed:"
UNREADABLE = "(encrypted)"
_ENCODE = msgspec.json.Encoder().encode


def sealed(ring: KeyRing, scope: str, context: str, plain: bytes) -> str:
    """Return a token: the id of the newest key, and what only that key opens."""
    found = ring.cipher(ring.newest, scope)
    if found is None:
        raise KeyMissing(
            "this store is encrypted, and nothing is written to it in plain text",
            remedy="Set $NINELIVES_KEYS to its keys",
        )
    cipher, nonces = found
    bound = _bound(ring.newest, scope, context)
    nonce = hmac.digest(nonces, b"%d:%b%b" % (len(bound), bound, plain), "sha256")[:NONCE_BYTES]
    content = nonce + cipher.encrypt(nonce, plain, bound)
    return f"{ring.newest}.{base64.b64encode(content).decode()}"


def opened(ring: KeyRing, scope: str, context: str, token: str, *, run: str | None, what: str) -> bytes:
    """Return what a token holds. Raises KeyMissing: no such key, or it was not sealed for this context."""
    key, _, text = token.partition(".")
    found = ring.cipher(key, scope)
    if found is None:
        raise KeyMissing(
            f"{what} is encrypted with the key {key}, which this process does not have",
            run=run,
            remedy=f"Add that key to $NINELIVES_KEYS (it has: {', '.join(ring.ids) or 'none'}), then retry",
        )
    from cryptography.exceptions import InvalidTag

    try:
        content = base64.b64decode(text, validate=True)
        nonce, bound = content[:NONCE_BYTES], _bound(key, scope, context)
        plain: bytes = found[0].decrypt(nonce, content[NONCE_BYTES:], bound)
    except (ValueError, InvalidTag):
        raise KeyMissing(
            f"{what} is not what was encrypted for this context: it was changed, or moved here",
            run=run,
            remedy="Nothing of it was used; other runs continue. Restore the store, or end this run",
        ) from None
    return plain


def _bound(key: str, scope: str, context: str) -> bytes:
    return _ENCODE([1, key, scope, context])


def as_object(token: str, of: list[object] | None = None) -> dict[str, object]:
    """Return a token as JSON that every reader of ours takes for a value, and refuses as one."""
    return {"$": "sealed", "of": of or [], "v": token}


def token_in(tree: object) -> tuple[str, list[object]] | None:
    """Return the token of a sealed object, and what it is of; None for anything else."""
    if type(tree) is dict and tree.get("$") == "sealed" and type(tree.get("v")) is str:
        of = tree.get("of")
        return tree["v"], of if type(of) is list else []
    return None
