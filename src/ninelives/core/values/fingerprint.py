"""The fingerprint of a step's arguments: replay compares it to detect a changed call.

Invariants: the same values give the same digest whatever the order of dicts, sets or keyword arguments; an
argument that equals its default counts as not given, so adding a parameter with a default does not change old
fingerprints; `self`, `cls` and what `ignore` names never count.

The encoding follows the values, not the annotations. It only has to be canonical, because nothing decodes
it. So dataclasses, structs, attrs and pydantic objects and enums are accepted anywhere, by class name (not
module) and fields. A field that equals its plain default is left out, as an argument is. Of a secret only its
name counts (docs/decisions/0042).

A preview is a few characters of each argument: it shows people what a divergence is about.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from ninelives.core.errors import NotSerializable, UsageError
from ninelives.core.ids import class_name, member_name
from ninelives.core.secret import Secret, is_secret, plain_of, shown
from ninelives.core.values import codec, lists
from ninelives.core.values.classes import ABSENT, fields_of
from ninelives.core.values.containers import Untyped, dump_pairs, refuse
from ninelives.core.values.lists import HEAD_CHARACTERS, Memory
from ninelives.core.values.scalars import MAX_DEPTH, SCALARS, SECRET_TAG, TAG, TEXT, Misfit, dump_items, tag

_ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode
_PARSE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_REQUIRED: Final = inspect.Parameter.empty
# Below 64 bits in every store and decoder: no guard is needed for these.
_LARGE: Final = 10**18
_EMPTY: Final = (list, dict, set, tuple, frozenset, str, bytes, int, float, bool)
"""Factories of defaults that make the same empty value each time."""
_REMEDY: Final = "Pass plain data, or name the parameter in ignore="


class Fingerprint(msgspec.Struct, frozen=True):
    """A digest of 16 bytes, and the canonical arguments that it was taken of.

    If a list was hashed from memory, `arguments` is empty and only the previews in `shown` are known.
    `plain` are the arguments themselves, if all are small numbers and plain text.
    """

    digest: bytes
    arguments: bytes
    shown: dict[str, str] | None = None
    plain: dict[str, int | str] | None = None

    def preview(self) -> dict[str, str]:
        """Return a few characters of each argument."""
        if self.shown is not None:
            return self.shown
        return preview(self.arguments) if self.plain is None else _preview_plain(self.plain)


class Taker(Protocol):
    """Takes the fingerprints of one function's calls."""

    def __call__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], memory: Memory | None = None, /
    ) -> Fingerprint:
        """Take the fingerprint of one call. With a memory, long lists cost only what is new in them.

        Raises NotSerializable with the path to a bad argument, UsageError when they do not fit the signature.
        """


def taker(signature: inspect.Signature, *, ignore: Collection[str] = ()) -> Taker:
    """Return the taker of one function's fingerprints; this call analyses the signature once."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(signature.parameters.values())
    # `*args` and keyword-only parameters need a real binding; most steps have neither, and save it.
    if not all(one.kind in by_position for one in parameters):
        return partial(_take_bound, signature, frozenset(ignore))
    counted = [
        (position, one.name, one.default)
        for position, one in enumerate(parameters)
        if one.name not in ignore and not (position == 0 and one.name in ("self", "cls"))
    ]
    return partial(_take_plain, signature, frozenset(ignore), len(parameters), counted)


def whole(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ignore: Collection[str]
) -> bytes:
    """Encode all arguments of a call canonically, with defaults and all fields: what a person approves.

    Raises NotSerializable, UsageError, as a `Taker` does.
    """
    bound = _bound(signature, args, kwargs)
    bound.apply_defaults()
    taken = {
        name: list(value) if parameter.kind is inspect.Parameter.VAR_POSITIONAL else value
        for name, value, parameter in _counted(bound, ignore)
    }
    return _dumped(_WHOLE, taken)


def _take_plain(
    signature: inspect.Signature,
    ignore: Collection[str],
    count: int,
    counted: list[tuple[int, str, object]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    memory: Memory | None = None,
) -> Fingerprint:
    """Take the fingerprint of a call whose arguments may all be given by position."""
    if kwargs or len(args) != count:
        return _take_bound(signature, ignore, args, kwargs, memory)
    return _take(
        {
            name: args[at]
            for at, name, default in counted
            if default is _REQUIRED or not _is_default(args[at], default)
        },
        memory,
    )


def _take_bound(
    signature: inspect.Signature,
    ignore: Collection[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    memory: Memory | None = None,
) -> Fingerprint:
    return _take(_bind(signature, args, kwargs, ignore), memory)


def _take(arguments: dict[str, Any], memory: Memory | None) -> Fingerprint:
    data = _canonical_of_plain(arguments)
    if data is not None:
        return Fingerprint(blake2b(data, digest_size=16).digest(), data, None, arguments)
    if memory is not None:
        for name, value in arguments.items():
            if type(value) is list and len(value) >= lists.FEWEST_ITEMS:
                taken = lists.take(arguments, name, memory, _canonical)
                if taken is not None:
                    shown = {name: _cut(taken.head, taken.characters)}
                    return Fingerprint(
                        taken.digest, b"", {**preview(taken.earlier), **shown, **preview(taken.later)}
                    )
    data = _canonical_of_any(arguments)
    return Fingerprint(blake2b(data, digest_size=16).digest(), data)


def check_ignore(signature: inspect.Signature, ignore: Collection[str]) -> None:
    """Check at registration that `ignore` names parameters. Raises UsageError."""
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values()):
        return
    for name in ignore:
        if name not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise UsageError(f"ignore= names {name!r}, which is no parameter", remedy=f"Parameters: {known}")


def _bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], ignore: Collection[str]
) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for name, value, parameter in _counted(_bound(signature, args, kwargs), ignore):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            taken[name] = list(value)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            taken[name] = {key: held for key, held in value.items() if key not in ignore}
        elif not _is_default(value, parameter.default):
            taken[name] = value
    return taken


def _bound(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as bad:
        raise UsageError(f"the arguments do not fit: {bad}", remedy=f"The signature is {signature}") from None


def _counted(
    bound: inspect.BoundArguments, ignore: Collection[str]
) -> Iterator[tuple[str, Any, inspect.Parameter]]:
    """Yield the arguments that count."""
    parameters = bound.signature.parameters
    first = next(iter(parameters), None)
    for name, value in bound.arguments.items():
        if name not in ignore and not (name == first and name in ("self", "cls")):
            yield name, value, parameters[name]


def _is_default(value: object, default: object) -> bool:
    # The exact type: 1 equals True, and a call with the other one is another call.
    return value is default or (type(value) is type(default) and codec.equal(value, default))


def _is_made(value: object, factory: Any) -> bool:
    """Return whether a value is what a default's factory makes, if it is one that we may call."""
    if factory not in _EMPTY:
        return False
    return _is_default(value, factory()) or (factory in (list, dict, set) and value == factory())


# -------------------------------------------------------------------------------------------- encoding


def _canonical(arguments: dict[str, Any]) -> bytes:
    data = _canonical_of_plain(arguments)
    return _canonical_of_any(arguments) if data is None else data


def _canonical_of_plain(arguments: dict[str, Any]) -> bytes | None:
    """Encode small numbers and plain text, which have one canonical form; None for all others."""
    for value in arguments.values():
        kind = type(value)
        if kind is int and -_LARGE < value < _LARGE:
            continue
        if kind is not str or not (value.isascii() and value.isprintable()):
            return None
    data = _ENCODE(arguments)
    return data if len(data) <= codec.MAX_BYTES else None


def _canonical_of_any(arguments: dict[str, Any]) -> bytes:
    if codec.UNTYPED_CODEC.try_plain(arguments) is not None:
        return _ENCODE(arguments)
    data = _dumped(_ARGUMENTS, arguments)
    if len(data) > codec.MAX_BYTES:
        raise NotSerializable(
            f"arguments of {len(data)} bytes, over the limit of {codec.MAX_BYTES}", path="$", remedy=_REMEDY
        )
    return data


def _dumped(shape: Untyped, arguments: dict[str, Any]) -> bytes:
    try:
        return _ENCODE(_in_order(shape.dump(arguments, MAX_DEPTH)))
    except Misfit as bad:
        error = codec.not_serializable(bad)
        raise NotSerializable(error.what, path=error.path, remedy=error.remedy or _REMEDY) from None


def _in_order(tree: Any) -> Any:
    """Sort what has no order (sets, pairs) by its encoding."""
    if type(tree) is list:
        return [_in_order(item) for item in tree]
    if type(tree) is not dict:
        return tree
    tree = {key: _in_order(item) for key, item in tree.items()}
    if tree.get(TAG) in ("set", "frozenset", "dict"):
        # By encoding, since values of different types cannot be compared;
        # Python's own order changes with the hash seed.
        tree["v"].sort(key=_ENCODE)
    return tree


def _dump_other(value: Any, depth: int, *, is_whole: bool = False) -> object:
    """Encode what an untyped result cannot hold: enums, objects with fields, subclasses of built-ins."""
    kind, dump = type(value), (_WHOLE if is_whole else _ARGUMENTS).dump
    if is_secret(value):
        if kind is not Secret:
            plain_of(value)  # its plain text is masked from now on
        return tag(SECRET_TAG, shown(value))
    if isinstance(value, enum.Enum):
        # By name: an enum's values may be renumbered without changing what is meant.
        return {TAG: "enum", "of": class_name(kind), "v": member_name(value)}
    fields = _fields(value, is_whole)
    if fields is not None:
        held = dump_pairs(dict(fields), TEXT.dump, dump, depth)
        return {TAG: "record", "of": class_name(kind), "v": held}
    if isinstance(value, dict):
        return dump_pairs(value, dump, dump, depth)
    if isinstance(value, list | tuple | set | frozenset):
        items = dump_items(value, dump, depth)
        name = next(one.__name__ for one in (list, tuple, set, frozenset) if isinstance(value, one))
        return items if name == "list" else tag(name, items)
    for base, scalar in SCALARS.items():
        if isinstance(value, base):
            return dump(scalar.load(scalar.dump(value, depth)), depth)
    return refuse(value, depth)


_ARGUMENTS: Final = Untyped(other=_dump_other)
_WHOLE: Final = Untyped(other=partial(_dump_other, is_whole=True))


def _fields(value: Any, is_whole: bool) -> Iterator[tuple[str, object]] | None:
    """Return an object's declared fields, all or those that differ from their defaults; None without any."""
    kind: Any = type(value)
    declared = fields_of(kind)
    if declared is not None:
        described = {one.name: (one.default, one.factory) for one in declared}
    elif hasattr(kind, "model_dump") and hasattr(kind, "__pydantic_fields__"):
        described = {
            name: (one.default, one.default_factory) for name, one in kind.__pydantic_fields__.items()
        }
        described |= dict.fromkeys(getattr(value, "__pydantic_extra__", None) or (), (ABSENT, None))
    else:
        return None
    return (
        (name, held)
        for name, (default, factory) in described.items()
        for held in [getattr(value, name, None)]
        if is_whole or not (_is_default(held, default) or _is_made(held, factory))
    )


# ------------------------------------------------------------------------------------------ for people


def preview(arguments: bytes) -> dict[str, str]:
    """Return a few characters of each of the canonical arguments."""
    return {name: _cut(bytes(raw).decode()) for name, raw in _PARSE(arguments).items()}


def _preview_plain(arguments: dict[str, int | str]) -> dict[str, str]:
    """Return the same previews of small numbers and plain text, without decoding their canonical form."""
    return {
        name: str(value) if value.__class__ is int else _cut(_ENCODE(value).decode())
        for name, value in arguments.items()
    }


def _cut(text: str, length: int = 0) -> str:
    """Return the beginning of a long text and its length (of which `text` may hold only the first part)."""
    length = length or len(text)
    return text if length <= HEAD_CHARACTERS else f"{text[:HEAD_CHARACTERS]}… ({length})"
