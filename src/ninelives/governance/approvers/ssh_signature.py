"""SSH signatures as `ssh-keygen -Y sign` makes them (PROTOCOL.sshsig), by Ed25519 keys.

What is read here comes from outside: every length is checked, nothing may follow the last field, and what
is not exactly of this format is refused. `cryptography` verifies; we never touch a private key.
"""

from __future__ import annotations

import base64
import binascii
import struct
from hashlib import sha256, sha512

from msgspec import Struct

from ninelives.core.errors import UsageError

NAMESPACE = "ninelives"
"""What signatures are made for (`ssh-keygen -n`): one for mail or git must not count here."""
KEY_TYPE = "ssh-ed25519"
_MAGIC, _VERSION = b"SSHSIG", 1
_HASHES = {b"sha256": sha256, b"sha512": sha512}
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_MOST_CHARACTERS = 4_096


class BadSignature(Exception):
    """A key or signature that is not what it should be; the text says what is wrong."""


class SshSignature(Struct, frozen=True):
    """A signature: the public key (its 32 bytes), what it was made for, the hash, the 64 bytes."""

    key: bytes
    namespace: str
    hash_name: bytes
    signature: bytes


class _Fields:
    """Reads the fields of SSH's wire format, one after the other. Raises BadSignature."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def raw(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise BadSignature("it is cut off")
        self._at += size
        return found

    def number(self) -> int:
        return int(struct.unpack(">I", self.raw(4))[0])

    def text(self) -> bytes:
        return self.raw(self.number())

    def end(self) -> None:
        if self._at != len(self._data):
            raise BadSignature("something follows its last field")


def read_key(line: str) -> bytes:
    """Return the 32 bytes of a public key as it stands in a .pub file. Raises BadSignature."""
    kind, _, rest = line.strip().partition(" ")
    if kind != KEY_TYPE:
        raise BadSignature(f"{kind[:40]!a} is not the key type {KEY_TYPE}")
    return _key(_decoded(rest.strip().partition(" ")[0]))


def write_key(key: bytes) -> str:
    """Return a public key as it stands in a .pub file, without a comment."""
    return f"{KEY_TYPE} {base64.b64encode(_field(KEY_TYPE.encode()) + _field(key)).decode()}"


def unarmoured(text: str) -> str:
    """Return the base64 of a signature on one line, from the text that ssh-keygen writes.

    Raises BadSignature when it is no signature.
    """
    lines = text.strip().splitlines()
    if len(lines) < 3 or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise BadSignature(f"it does not begin with {_BEGIN!r} and end with {_END!r}")
    found = "".join(line.strip() for line in lines[1:-1])
    read_signature(found)
    return found


def armoured(signature: str) -> str:
    """Return a signature as the text that ssh-keygen reads."""
    lines = [signature[at : at + 70] for at in range(0, len(signature), 70)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def read_signature(text: str) -> SshSignature:
    """Return the signature that base64 on one line holds. Raises BadSignature."""
    fields = _Fields(_decoded(text))
    if fields.raw(len(_MAGIC)) != _MAGIC:
        raise BadSignature("it is no SSH signature")
    if (version := fields.number()) != _VERSION:
        raise BadSignature(f"it has the version {version}, not {_VERSION}")
    key, namespace, reserved = _key(fields.text()), fields.text(), fields.text()
    hash_name, signed = fields.text(), _Fields(fields.text())
    fields.end()
    if reserved:
        raise BadSignature("its reserved field is not empty")
    if hash_name not in _HASHES:
        raise BadSignature(f"its hash is {hash_name[:20]!a}, not sha256 or sha512")
    kind, signature = signed.text(), signed.text()
    signed.end()
    if kind != KEY_TYPE.encode() or len(signature) != 64:
        raise BadSignature(f"it is no signature of the type {KEY_TYPE}")
    try:
        return SshSignature(key, namespace.decode("ascii"), hash_name, signature)
    except UnicodeDecodeError:
        raise BadSignature("its namespace is not ASCII") from None


def verify(found: SshSignature, text: bytes) -> None:
    """Check that a signature is one of this text, made for our namespace. Raises BadSignature."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if found.namespace != NAMESPACE:
        raise BadSignature(f"it was made for {found.namespace[:40]!a}, not for {NAMESPACE!r}")
    digest = _HASHES[found.hash_name](text).digest()
    signed = [found.namespace.encode(), b"", found.hash_name, digest]
    try:
        key = Ed25519PublicKey.from_public_bytes(found.key)
        key.verify(found.signature, _MAGIC + b"".join(map(_field, signed)))
    except (InvalidSignature, ValueError):
        raise BadSignature("it is not one of this text: another was signed, or it was changed") from None


def require_library() -> None:
    """Check that signatures can be verified here. Raises UsageError naming the extra."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError:
        raise UsageError(
            "answers of approvers cannot be verified: the package cryptography is missing",
            remedy='Install it: pip install "ninelives[sign]"',
        ) from None


def _key(blob: bytes) -> bytes:
    fields = _Fields(blob)
    if fields.text() != KEY_TYPE.encode():
        raise BadSignature(f"its key is not of the type {KEY_TYPE}")
    key = fields.text()
    fields.end()
    if len(key) != 32:
        raise BadSignature("its key does not have 32 bytes")
    return key


def _decoded(text: str) -> bytes:
    if len(text) > _MOST_CHARACTERS:
        raise BadSignature("it is too long")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise BadSignature("it is not base64") from None


def _field(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
