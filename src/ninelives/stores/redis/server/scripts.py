"""The scripts of the `.lua` files. A server knows each by the digest of its text."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

VERSION = b"3"
"""The version of the stored data: a process of another version stops."""


class LuaScript(Struct, frozen=True):
    """A script's text, and the digest by which the server knows it."""

    text: bytes
    digest: bytes


@cache
def script(name: str, *, frees: bool = False) -> LuaScript:
    """Return a script by its file name; with `frees`, it may run on a server without free memory."""
    folder = files(__package__) / "scripts"
    parts = (folder / "parts.lua").read_bytes()
    text = (folder / f"{name}.lua").read_bytes().replace(b"--! parts", parts)
    if frees:
        # Pruning must work on a full server: it is how memory is freed.
        # All other writes are refused there before they begin.
        text = text.replace(b"#!lua\n", b"#!lua flags=allow-oom\n", 1)
    return LuaScript(text, sha1(text, usedforsecurity=False).hexdigest().encode())
