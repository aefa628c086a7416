"""Lists that grow: the fingerprint of a conversation costs what is new in it, not what is there.

A conversation is handed to step after step, each time longer by a few messages. The digest is always that of
the whole canonical encoding, so nothing recorded depends on what is remembered here: the state of the hash
after the items that are known is kept, and goes on from there with those that are new.

Invariant: items count as known only while they are the same, in content and in exact types. All of them are
dumped and compared each time, which takes a twentieth of encoding, checking and hashing them; so a message
that was changed in place, or replaced by one that is merely equal, is seen. Bytes are dumped like anything
that only looks like them (a bytearray, an array), so a list with bytes in it is not remembered.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ninelives.core import codec
from ninelives.core.errors import NotSerializable
from ninelives.core.previews import CHARACTERS, cut, preview

FEWEST_ITEMS: Final = 8
FEWEST_BYTES: Final = 4096
"""Shorter lists cost too little to be remembered."""
MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_LISTS: Final = 8
_HEADER: Final = 5  # a dumped list begins with its kind and its length; then its items, each telling its end
_NOTHING: Final = len(b"{}")
_BYTES: Final = b'{"$":"bytes",'
_ENCODE: Final = msgspec.json.Encoder().encode

Canonical = Callable[[dict[str, Any]], bytes]


class Grown:
    """A list as it was when it was last seen: its dump, and how far the hash and the counts have come."""

    __slots__ = ("characters", "count", "digest", "dumped", "first", "length")

    def __init__(self, before: bytes) -> None:
        self.dumped: list[bytes] = []
        self.count, self.digest = 0, blake2b(before, digest_size=16)
        self.first, self.characters, self.length = "", len("[]"), len(before)

    def end_in(self, dump: bytes) -> int | None:
        """Return where the items that are known end in the dump of a list; None when it has others."""
        at = _HEADER
        for known in self.dumped:
            if not dump.startswith(known, at):
                return None
            at += len(known)
        return at

    def add(self, encoded: bytes, dumped: bytes, count: int) -> None:
        """Go on by some items: encoded, and dumped."""
        encoded = b"," + encoded if self.count else encoded
        text = encoded.decode()
        self.first = self.first or "[" + text[:CHARACTERS]
        self.digest.update(encoded)
        self.characters, self.length = self.characters + len(text), self.length + len(encoded)
        self.dumped.append(dumped)
        self.count += count


Memory = dict[tuple[bytes, bytes], Grown]
"""The lists of one run, by what stands before them and how they begin; those used last are at its end."""


def take(
    arguments: Mapping[str, Any], name: str, memory: Memory, canonical: Canonical
) -> tuple[bytes, dict[str, str]] | None:
    """Take the digest of arguments of which one is a list; None where it must be taken of the whole.

    Returns the digest, and what is shown of each argument.
    """
    try:
        dump = marshal.dumps(arguments[name], 2)  # without references: types and contents are all that counts
        if not FEWEST_BYTES <= len(dump) <= MOST_BYTES:
            return None
        earlier = canonical({other: held for other, held in arguments.items() if other < name})
        later = canonical({other: held for other, held in arguments.items() if other > name})
        before = earlier[:-1] + (b"," if len(earlier) > _NOTHING else b"") + _ENCODE(name) + b":["
        grown = _grown(arguments, name, dump, before, memory, canonical)
    except (ValueError, NotSerializable):
        return None  # not all of it is built in, or it is refused: who looks at all of it says where
    after = b"]," + later[1:] if len(later) > _NOTHING else b"]}"
    if grown is None or grown.length + len(after) > codec.MAX_BYTES:
        return None
    whole = grown.digest.copy()
    whole.update(after)
    shown = {name: cut(grown.first, grown.characters)}
    return whole.digest(), {**preview(earlier), **shown, **preview(later)}


def _grown(
    arguments: Mapping[str, Any], name: str, dump: bytes, before: bytes, memory: Memory, canonical: Canonical
) -> Grown | None:
    """Return the list as it is now, from what is known of it; None where that cannot be told."""
    key = (before, dump[_HEADER:FEWEST_BYTES])
    grown = memory.pop(key, None)
    at = grown.end_in(dump) if grown is not None else None
    if grown is None or at is None:
        grown, at = Grown(before), _HEADER
    new = arguments[name][grown.count :]
    if new:
        encoded = canonical({name: new})[len(_ENCODE(name)) + len("{:[") : -len("]}")]
        dumped = marshal.dumps(new, 2)[_HEADER:]
        if not dump.startswith(dumped, at) or _BYTES in encoded:
            return None
        grown.add(encoded, dumped, len(new))
    memory[key] = grown
    if len(memory) > _MOST_LISTS:
        del memory[next(iter(memory))]
    return grown
