"""Long lists, kept by item: what a list shares with an earlier one is not stored again.

A conversation is handed on from turn to turn and grows at its end. Stored whole each time, it costs the
square of its length. So a long list becomes leaves of a few items, nodes of leaves, and a tail that is kept
in place; leaves and nodes are blobs, named by their content, so a longer list stores only what is new.

Split and joined on the encoded form: the value that comes back is the one that went in, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import Corrupt
from ninelives.core.values import blobs

LEAF_ITEMS = 4
NODE_LEAVES = 16
LIST_BYTES = 2048
"""Shorter lists are kept whole."""

_DEPTH = 3  # a list inside an object inside the arguments is as deep as we look
_MARK = b'{"$parts":'


class Parts(Struct, frozen=True):
    """A list in parts: full nodes, full leaves after them, and the last items in place."""

    nodes: list[str]
    leaves: list[str]
    tail: list[Raw]


class _Marked(Struct, frozen=True, rename={"parts": "$parts"}):
    parts: Parts


_LIST = msgspec.json.Decoder(list[Raw]).decode
_OBJECT = msgspec.json.Decoder(dict[str, Raw]).decode
_NAMES = msgspec.json.Decoder(list[str]).decode
_MARKED = msgspec.json.Decoder(_Marked).decode


def split(data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the encoded value with its long lists in parts, and the blobs they are in, by name.

    A value that holds what could be taken for our marks is kept whole: an object that begins with the key
    "$parts". Text cannot, whatever it says: its quotes are escaped.
    """
    made: dict[bytes, bytes] = {}
    return (data if _MARK in data else _split(data, made, _DEPTH)), made


def _split(data: bytes, made: dict[bytes, bytes], depth: int) -> bytes:
    if len(data) < LIST_BYTES or depth == 0:
        return data
    if data.startswith(b"["):
        items = _LIST(data)
        return _in_parts(items, made) if len(items) >= LEAF_ITEMS else data
    if data.startswith(b"{"):
        fields = _OBJECT(data)
        inner = {name: Raw(_split(bytes(value), made, depth - 1)) for name, value in fields.items()}
        return msgspec.json.encode(inner)
    return data


def _in_parts(items: list[Raw], made: dict[bytes, bytes]) -> bytes:
    full = len(items) // LEAF_ITEMS * LEAF_ITEMS
    leaves = [
        _keep(msgspec.json.encode(items[at : at + LEAF_ITEMS]), made) for at in range(0, full, LEAF_ITEMS)
    ]
    inner = len(leaves) // NODE_LEAVES * NODE_LEAVES
    nodes = [
        _keep(msgspec.json.encode(leaves[at : at + NODE_LEAVES]), made) for at in range(0, inner, NODE_LEAVES)
    ]
    return msgspec.json.encode(_Marked(Parts(nodes, leaves[inner:], items[full:])))


def _keep(content: bytes, made: dict[bytes, bytes]) -> str:
    name = blobs.digest(content)
    made[name] = content
    return name.hex()


def join(data: bytes, fetch: Callable[[list[bytes]], Mapping[bytes, bytes]]) -> tuple[bytes, set[bytes]]:
    """Return a value that was split with its lists whole again, and the names of the blobs they were in.

    Raises Corrupt.
    """
    used: set[bytes] = set()

    def get(names: list[str]) -> list[bytes]:
        wanted = [bytes.fromhex(name) for name in names]
        used.update(wanted)
        found = fetch(wanted)
        return [found[name] for name in wanted]

    try:
        return _join(data, get, _DEPTH), used
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise Corrupt(f"a list that is kept in parts cannot be put together: {error}") from None


def _join(data: bytes, get: Callable[[list[str]], list[bytes]], depth: int) -> bytes:
    if data.startswith(_MARK):
        parts = _MARKED(data).parts
        leaves = [name for node in get(parts.nodes) for name in _NAMES(node)] + parts.leaves
        items = [item for leaf in get(leaves) for item in _LIST(leaf)] + parts.tail
        return msgspec.json.encode(items)
    if depth and data.startswith(b"{") and _MARK in data:
        return msgspec.json.encode(
            {name: Raw(_join(bytes(value), get, depth - 1)) for name, value in _OBJECT(data).items()}
        )
    return data
