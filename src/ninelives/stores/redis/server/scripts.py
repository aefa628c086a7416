"""The scripts, out of their `.lua` files. A server knows each by the digest of its text."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

VERSION = b"2"
"""The version of what is kept: a process of another version stops."""


class LuaScript(Struct, frozen=True):
    """A script's text and the name that the server knows it by."""

    text: bytes
    digest: bytes


@cache
def script(name: str, *, frees: bool = False) -> LuaScript:
    """Return a script by the name of its file; one that `frees` memory runs where there is none left."""
    folder = files(__package__) / "scripts"
    parts = (folder / "parts.lua").read_bytes()
    text = (folder / f"{name}.lua").read_bytes().replace(b"--! parts", parts)
    if frees:
        text = text.replace(b"#!lua\n", b"#!lua flags=allow-oom\n", 1)
    return LuaScript(text, sha1(text, usedforsecurity=False).hexdigest().encode())
