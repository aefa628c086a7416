"""Blobs: large values, stored once under the digest of their content, compressed when that helps.

The packed form is one byte for the method, then the content. Unpacking never yields more than MAX_BYTES, so
a zip bomb in a damaged file costs little memory.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b

from ninelives.core.errors import Corrupt

DIGEST_BYTES = 16
MAX_BYTES = 64 * 1024 * 1024
_RAW, _ZLIB = b"r", b"z"


def digest(raw: bytes) -> bytes:
    """Return the name of a blob: the digest of its content."""
    return blake2b(raw, digest_size=DIGEST_BYTES, person=b"ninelives-blob").digest()


def pack(raw: bytes) -> bytes:
    """Return the stored form."""
    squeezed = zlib.compress(raw, 1)
    # A tenth must be saved: else each read pays for nothing.
    return _ZLIB + squeezed if len(squeezed) < len(raw) * 0.9 else _RAW + raw


def unpack(name: bytes, packed: bytes) -> bytes:
    """Return the content of a stored blob. Raises Corrupt when it does not match its name."""
    method, content = packed[:1], packed[1:]
    if method == _ZLIB:
        stream = zlib.decompressobj()
        try:
            raw = stream.decompress(content, MAX_BYTES)
        except zlib.error:
            raise _corrupt(name) from None
        if not stream.eof:
            raise _corrupt(name)
    elif method == _RAW:
        raw = content
    else:
        raise _corrupt(name)
    if digest(raw) != name:
        raise _corrupt(name)
    return raw


def _corrupt(name: bytes) -> Corrupt:
    return Corrupt(
        f"blob {name.hex()} is not what was written",
        remedy="Runs that refer to it cannot be read; restore the store from a backup. Other runs continue",
    )
