"""Tree heads: how large the audit log is and its root, as a note that others can keep and check.

The note is a C2SP `tlog-checkpoint` (https://c2sp.org/tlog-checkpoint): three lines, an empty line, and a
line for each signature. A signature is Ed25519 over the three lines. Keys are PEM or OpenSSH files, as
`openssl genpkey -algorithm ed25519` and `ssh-keygen -t ed25519` write them, without a passphrase.

Signing needs cryptography (`pip install 'ninelives[audit]'`).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ninelives.core.errors import BadFile, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_NOTE = re.compile(
    r"(ninelives/([0-9a-f]{32})\n(0|[1-9][0-9]{0,17})\n([A-Za-z0-9+/]{43}=)\n)\n((?:— [^\n]+\n)*)"
)
_ED25519 = b"\x01"  # the kind of signature, in the id of a key


class TreeHead(Struct, frozen=True):
    """The size and the root of a log at some moment."""

    log: str
    size: int
    root: bytes

    @property
    def origin(self) -> str:
        """Return the name of the log, which is the name of its keys too."""
        return f"ninelives/{self.log}"

    @property
    def text(self) -> str:
        """Return what is signed."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


class Note(Struct, frozen=True):
    """A tree head as it was read, with its signatures: the id of the key, and the signature."""

    head: TreeHead
    signatures: tuple[tuple[bytes, bytes], ...]


def write_note(head: TreeHead, key: Ed25519PrivateKey | None = None) -> bytes:
    """Return a tree head as a note, signed if there is a key."""
    note = f"{head.text}\n"
    if key is not None:
        signed = _key_id(head, key.public_key()) + key.sign(head.text.encode())
        note += f"— {head.origin} {b64encode(signed).decode()}\n"
    return note.encode()


def read_note(content: bytes, what: str) -> Note:
    """Return what a note says; its signatures are not checked. Raises BadFile, which names it by `what`."""
    found = _NOTE.fullmatch(content.decode("utf-8", "replace"))
    if found is None:
        raise BadFile(
            f"{what} is no tree head of an audit log", remedy="It was cut or changed, or it is something else"
        )
    head = TreeHead(found[2], int(found[3]), b64decode(found[4]))
    signatures = []
    for line in found[5].splitlines():
        name, _, signed = line.removeprefix("— ").rpartition(" ")
        try:
            raw = b64decode(signed, validate=True)
        except ValueError as error:
            raise BadFile(f"{what} has a signature that is not base64") from error
        if name == head.origin:
            signatures.append((raw[:4], raw[4:]))
    return Note(head, tuple(signatures))


def is_signed(note: Note, key: Ed25519PublicKey) -> bool:
    """Return whether a note has a valid signature of this key."""
    from cryptography.exceptions import InvalidSignature

    for key_id, signature in note.signatures:
        if key_id == _key_id(note.head, key):
            try:
                key.verify(signature, note.head.text.encode())
            except InvalidSignature:
                continue
            return True
    return False


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key of a file. Raises UsageError."""
    serialization, ed25519 = _cryptography()
    key = _loaded(path, (serialization.load_ssh_private_key, serialization.load_pem_private_key), None)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return cast("Ed25519PrivateKey", key)
    raise _wrong(path, "an Ed25519 private key without a passphrase")


def public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key of a file. Raises UsageError."""
    serialization, ed25519 = _cryptography()
    key = _loaded(path, (serialization.load_ssh_public_key, serialization.load_pem_public_key))
    if isinstance(key, ed25519.Ed25519PublicKey):
        return cast("Ed25519PublicKey", key)
    raise _wrong(path, "an Ed25519 public key")


def _key_id(head: TreeHead, key: Ed25519PublicKey) -> bytes:
    return sha256(head.origin.encode() + b"\n" + _ED25519 + key.public_bytes_raw()).digest()[:4]


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise UsageError(
            f"signatures need cryptography: {error}", remedy="pip install 'ninelives[audit]'"
        ) from error
    return serialization, ed25519


def _loaded(path: Path, loaders: Sequence[Callable[..., object]], *more: None) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"the key {str(path)!r} cannot be read: {error.strerror}") from error
    for load in loaders:
        try:
            return load(content, *more)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue  # another format
    return None


def _wrong(path: Path, wanted: str) -> UsageError:
    return UsageError(
        f"{str(path)!r} is not {wanted}",
        remedy="Make a pair with: openssl genpkey -algorithm ed25519 -out audit.key; "
        "openssl pkey -in audit.key -pubout -out audit.pub",
    )
