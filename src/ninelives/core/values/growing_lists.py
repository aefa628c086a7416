"""Lists that grow: the fingerprint of a conversation costs what is new in it, not what is there.

A conversation is handed to step after step, each time longer by a few messages. The digest is always that of
the whole canonical encoding, so nothing recorded depends on what is remembered here: the state of the hash
after the items that are known is kept, and goes on from there with those that are new.

Invariant: items count as known only while they are the same, in content and in exact types, and all of them
are looked at each time. Flat dicts are the same if they have the very objects that they had, which nobody can
change (text, numbers); all others if their dump is. So a message that was changed in place, or replaced by
one that is merely equal, is seen. Bytes are dumped like anything that only looks like them (a bytearray, an
array), so a list with bytes in it is not remembered.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import chain
from operator import is_
from typing import Any, Final

import msgspec

from ninelives.core.errors import NotSerializable
from ninelives.core.values import codec
from ninelives.core.values.preview import CHARACTERS, cut, preview

FEWEST_ITEMS: Final = 8
FEWEST_BYTES: Final = 4096
"""Shorter lists cost too little to be remembered."""
MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_LISTS: Final = 8
_FIRST_ITEMS: Final = 4
_HEADER: Final = 5  # a dumped list begins with its kind and its length; then its items, each telling its end
_UNCHANGEABLE: Final = {str, int, float, bool, type(None)}
_NOTHING: Final = len(b"{}")
_BYTES: Final = b'{"$":"bytes",'
_ENCODE: Final = msgspec.json.Encoder().encode

Canonical = Callable[[dict[str, Any]], bytes]


class Grown:
    """A list as it was when it was last seen, and how far the hash and the counts have come.

    `values`, `keys` and `sizes` are those of all its items, one after the other, while all are flat dicts.
    """

    __slots__ = ("characters", "count", "digest", "dumped", "first", "keys", "length", "sizes", "values")

    def __init__(self, before: bytes) -> None:
        self.dumped: list[bytes] = []
        self.values: list[object] | None = []
        self.keys: list[str] = []
        self.sizes: list[int] = []
        self.count, self.digest = 0, blake2b(before, digest_size=16)
        self.first, self.characters, self.length = "", len("[]"), len(before)

    def begins(self, items: list[Any]) -> bool:
        """Tell whether a list begins with the items that are known. Raises ValueError of what has no dump."""
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
        """Go on by some items, and their dump and encoding."""
        encoded = b"," + encoded if self.count else encoded
        text = encoded.decode()
        self.first = self.first or "[" + text[:CHARACTERS]
        self.digest.update(encoded)
        self.characters, self.length = self.characters + len(text), self.length + len(encoded)
        self.dumped.append(dump[_HEADER:])
        self.count += len(new)
        if self.values is not None and set(map(type, new)) == {dict}:
            values = list(chain.from_iterable(map(dict.values, new)))
            if set(map(type, values)) <= _UNCHANGEABLE:
                self.values += values
                self.keys += chain.from_iterable(new)
                self.sizes += map(len, new)
                return
        self.values = None


Memory = dict[tuple[bytes, bytes], Grown]
"""The lists of one run, by what stands before them and how they begin; those used last are at its end."""


def take(
    arguments: Mapping[str, Any], name: str, memory: Memory, canonical: Canonical
) -> tuple[bytes, dict[str, str]] | None:
    """Take the digest of arguments of which one is a list; None where it must be taken of the whole.

    Returns the digest, and what is shown of each argument.
    """
    try:
        earlier = canonical({other: held for other, held in arguments.items() if other < name})
        later = canonical({other: held for other, held in arguments.items() if other > name})
        before = earlier[:-1] + (b"," if len(earlier) > _NOTHING else b"") + _ENCODE(name) + b":["
        grown = _grown(arguments[name], name, before, memory, canonical)
    except (ValueError, NotSerializable):
        return None  # not all of it is built in, or it is refused: who looks at all of it says where
    after = b"]," + later[1:] if len(later) > _NOTHING else b"]}"
    if grown is None or grown.length + len(after) > codec.MAX_BYTES:
        return None
    whole = grown.digest.copy()
    whole.update(after)
    shown = {name: cut(grown.first, grown.characters)}
    return whole.digest(), {**preview(earlier), **shown, **preview(later)}


def _grown(items: list[Any], name: str, before: bytes, memory: Memory, canonical: Canonical) -> Grown | None:
    """Return the list as it is now, from what is known of it; None where that is not worth it."""
    key = (before, marshal.dumps(items[:_FIRST_ITEMS], 2)[:FEWEST_BYTES])
    grown = memory.pop(key, None)
    if grown is None or not grown.begins(items):
        grown = Grown(before)
    new = items[grown.count :]
    if new:
        dump = marshal.dumps(new, 2)  # without references: types and contents are all that counts
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
