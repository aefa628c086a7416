"""Long lists: hash and store only what is new in them.

A conversation goes from step to step and from turn to turn, each time longer by a few messages. Hashed and
stored whole each time, it would cost the square of its length.

**Hashing** (`take`). The digest is always that of the whole canonical encoding, so nothing recorded depends
on what a process remembers: we keep the state of the hash after the known items and continue it with the new
ones. Invariant: items count as known only while content and exact types are the same, and every call checks
all of them. Flat dicts are the same if they hold the very objects that they held before, all immutable
(text, numbers); all other items are the same if their dump is. So we notice a message that was changed in
place, or replaced by one that is merely equal. A list with bytes in it is not remembered: bytes have the
same dump as types that resemble them (a bytearray, an array).

**Storing** (`split`, `join`). A long list becomes leaves of a few items, nodes of leaves, and a tail that
stays in the value. Leaves and nodes are blobs named by their content, so a longer list stores only what is
new. Both work on the encoded form: the value comes back byte by byte.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import chain
from operator import is_
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import Corrupt, NotSerializable
from ninelives.core.values import blobs, codec

# --------------------------------------------------------------------------------------------- hashing

FEWEST_ITEMS: Final = 8
FEWEST_BYTES: Final = 4096
"""Shorter lists cost too little to be remembered."""
MOST_BYTES: Final = 4 * 1024 * 1024
HEAD_CHARACTERS: Final = 60
_MOST_LISTS: Final = 8
_FIRST_ITEMS: Final = 4
_HEADER: Final = 5  # a dumped list begins with its kind and length; its items follow, each self-delimiting
# Only of these does the same object prove the same content.
_IMMUTABLE: Final = {str, int, float, bool, type(None)}
_EMPTY: Final = len(b"{}")
_BYTES: Final = b'{"$":"bytes",'
_ENCODE: Final = msgspec.json.Encoder().encode

Canonical = Callable[[dict[str, Any]], bytes]


class Grown:
    """A list as of the last call, with the state of its hash and its counts.

    `values`, `keys` and `sizes` are those of all items in order, as long as every item is a flat dict.
    """

    __slots__ = ("characters", "count", "digest", "dumped", "head", "keys", "length", "sizes", "values")

    def __init__(self, before: bytes) -> None:
        self.dumped: list[bytes] = []
        self.values: list[object] | None = []
        self.keys: list[str] = []
        self.sizes: list[int] = []
        self.count, self.digest = 0, blake2b(before, digest_size=16)
        self.head, self.characters, self.length = "", len("[]"), len(before)

    def begins(self, items: list[Any]) -> bool:
        """Return whether a list begins with the known items. Raises ValueError for what has no dump."""
        known = items[: self.count]
        return len(known) == self.count and (self._holds(known) or self._was(marshal.dumps(known, 2)))

    def _holds(self, known: list[Any]) -> bool:
        return (
            self.values is not None
            and set(map(type, known)) == {dict}
            and list(map(len, known)) == self.sizes
            and all(map(is_, chain.from_iterable(map(dict.values, known)), self.values))
            and all(map(is_, chain.from_iterable(known), self.keys))
        )

    def _was(self, dump: bytes) -> bool:
        at = _HEADER
        for part in self.dumped:
            if not dump.startswith(part, at):
                return False
            at += len(part)
        return True

    def add(self, new: list[Any], dump: bytes, encoded: bytes) -> None:
        """Add items, given with their dump and their encoding."""
        encoded = b"," + encoded if self.count else encoded
        text = encoded.decode()
        self.head = self.head or "[" + text[:HEAD_CHARACTERS]
        self.digest.update(encoded)
        self.characters, self.length = self.characters + len(text), self.length + len(encoded)
        self.dumped.append(dump[_HEADER:])
        self.count += len(new)
        if self.values is not None and set(map(type, new)) == {dict}:
            values = list(chain.from_iterable(map(dict.values, new)))
            if set(map(type, values)) <= _IMMUTABLE:
                self.values += values
                self.keys += chain.from_iterable(new)
                self.sizes += map(len, new)
                return
        self.values = None


Memory = dict[tuple[bytes, bytes], Grown]
"""The lists of one run, by the encoding before them and their first items; the last used are at the end."""


class TakenList(NamedTuple):
    """The digest of arguments with a long list in them, and what a preview needs of them.

    `earlier` and `later` are the canonical encodings of the arguments before and after the list; `head` is
    the beginning of the list's encoding, which has `characters` in all.
    """

    digest: bytes
    earlier: bytes
    later: bytes
    head: str
    characters: int


def take(arguments: Mapping[str, Any], name: str, memory: Memory, canonical: Canonical) -> TakenList | None:
    """Take the digest of arguments of which `name` is a list; None: the caller must encode all of them."""
    try:
        earlier = canonical({other: held for other, held in arguments.items() if other < name})
        later = canonical({other: held for other, held in arguments.items() if other > name})
        before = earlier[:-1] + (b"," if len(earlier) > _EMPTY else b"") + _ENCODE(name) + b":["
        grown = _grown(arguments[name], name, before, memory, canonical)
    except (ValueError, NotSerializable):
        return None  # not all built in, or refused: encoding all of it reports the path to the bad value
    after = b"]," + later[1:] if len(later) > _EMPTY else b"]}"
    if grown is None or grown.length + len(after) > codec.MAX_BYTES:
        return None
    # A copy: the state without the closing bracket goes on with the next call.
    whole = grown.digest.copy()
    whole.update(after)
    return TakenList(whole.digest(), earlier, later, grown.head, grown.characters)


def _grown(items: list[Any], name: str, before: bytes, memory: Memory, canonical: Canonical) -> Grown | None:
    """Return the list as it is now, from what we know of it; None where that is not worth it."""
    # By its first items: a run may have several conversations, and each keeps its own state.
    key = (before, marshal.dumps(items[:_FIRST_ITEMS], 2)[:FEWEST_BYTES])
    # Popped, so that what fails below is forgotten; put back at the end, as the last used.
    grown = memory.pop(key, None)
    if grown is None or not grown.begins(items):
        grown = Grown(before)
    new = items[grown.count :]
    if new:
        dump = marshal.dumps(new, 2)  # version 2 writes no references: only types and contents count
        if not FEWEST_BYTES <= grown.length + len(dump) <= MOST_BYTES:
            return None
        encoded = canonical({name: new})[len(_ENCODE(name)) + len("{:[") : -len("]}")]
        grown.add(new, dump, encoded)
        if _BYTES in encoded or dump != marshal.dumps(new, 2):
            return None  # in the latter case, another thread is changing it
    memory[key] = grown
    if len(memory) > _MOST_LISTS:
        del memory[next(iter(memory))]
    return grown


# --------------------------------------------------------------------------------------------- storing

LEAF_ITEMS: Final = 4
NODE_LEAVES: Final = 16
LIST_BYTES: Final = 2048
"""Shorter lists are kept whole."""
_DEPTH: Final = 3  # we split lists down to this depth: arguments, an object, a list in it
_MARK: Final = b'{"$parts":'


class Parts(Struct, frozen=True):
    """A list in parts: full nodes, then full leaves, then the last items themselves."""

    nodes: list[str]
    leaves: list[str]
    tail: list[Raw]


class _Marked(Struct, frozen=True, rename={"parts": "$parts"}):
    parts: Parts


_LIST: Final = msgspec.json.Decoder(list[Raw]).decode
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_NAMES: Final = msgspec.json.Decoder(list[str]).decode
_MARKED: Final = msgspec.json.Decoder(_Marked).decode


def split(data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the encoded value with its long lists in parts, and the blobs that hold them, by name.

    A value that already contains our mark (an object that begins with the key "$parts") is kept whole. Text
    cannot contain it: its quotes are escaped.
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
        return _ENCODE(inner)
    return data


def _in_parts(items: list[Raw], made: dict[bytes, bytes]) -> bytes:
    # Only full leaves become blobs: a list that grows by one
    # changes the tail alone, and every earlier blob is reused.
    full = len(items) // LEAF_ITEMS * LEAF_ITEMS
    leaves = [_keep(_ENCODE(items[at : at + LEAF_ITEMS]), made) for at in range(0, full, LEAF_ITEMS)]
    inner = len(leaves) // NODE_LEAVES * NODE_LEAVES
    nodes = [_keep(_ENCODE(leaves[at : at + NODE_LEAVES]), made) for at in range(0, inner, NODE_LEAVES)]
    return _ENCODE(_Marked(Parts(nodes, leaves[inner:], items[full:])))


def _keep(content: bytes, made: dict[bytes, bytes]) -> str:
    name = blobs.digest(content)
    made[name] = content
    return name.hex()


def join(data: bytes, fetch: Callable[[list[bytes]], Mapping[bytes, bytes]]) -> tuple[bytes, set[bytes]]:
    """Return a split value with its lists whole again, and the names of their blobs. Raises Corrupt."""
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
        return _ENCODE(items)
    if depth and data.startswith(b"{") and _MARK in data:
        return _ENCODE(
            {name: Raw(_join(bytes(value), get, depth - 1)) for name, value in _OBJECT(data).items()}
        )
    return data
