"""Values to bytes and back: JSON by msgspec plus a closed set of tags.

Contract: `round(value)` returns the bytes and the value that they decode to, which equals the given one and
has the annotated type; anything else is refused with the path to it. Types come from annotations, never from
names in the data; nothing is imported by a stored name and nothing is unpickled.

There are two paths. On the fast path msgspec encodes and decodes in C; we compare, and run cheap guards over
the bytes, which may err only towards caution. What they doubt takes the slow, exact walk over the shapes
(see `scalars`), which decides. So do annotations for which a value of another type could come back equal (1
for a Decimal, a bytearray for bytes, another enum's member). Bytes without `"$"` are plain JSON; bytes with
it are read by the walk. What is refused in a value is refused in stored bytes too.

An annotated value comes back as the annotated type: a subclass of a built-in (a defaultdict for a dict, a
str enum for a str, an int for a float) comes back as the built-in, on the first execution too. Without an
annotation only exact built-in types and the tagged scalars are accepted, and they come back exactly
(including -0.0, tuples, bools).
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from ninelives.core.errors import Corrupt, Divergence, NotSerializable, UsageError
from ninelives.core.secret import KEPT, names_secret
from ninelives.core.values.classes import WHOLE, ClassShape, Flags, Members, Model, Unclaimed, lost_key
from ninelives.core.values.containers import FixedTuple, Items, Untyped
from ninelives.core.values.scalars import (
    BYTES,
    DATETIME,
    DECIMAL,
    ENCRYPT,
    FLOAT,
    INT,
    MAX_DEPTH,
    TIME,
    Malformed,
    Misfit,
    SecretShape,
    Shape,
    TooDeep,
    step_to,
)
from ninelives.core.values.trusted import TRUSTING, holds
from ninelives.core.values.types import MISSING, shape_of

MAX_BYTES = 16 * 1024 * 1024

_ENCODE: Final = msgspec.json.Encoder().encode
_PARSE: Final = msgspec.json.Decoder().decode
_TAG_MARK: Final = b'"$"'
_NUL_MARK: Final = b"\\u0000"
_QUOTE: Final = ord('"')
_DIGITS_TO_ZERO: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19
_CONTAINERS: Final = (list, dict, tuple, set, frozenset)
_RESTORE: Final = "Restore the type until this run has ended"
_KEEP: Final = "Keep the field, with a default, until this run has ended"


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one annotation are stored. Made by `codec_for`."""

    shape: Shape
    decoder: msgspec.json.Decoder[Any] | None  # None: only the walk can decide
    untyped: bool  # some part has no annotation: equal is not enough, types must be exact
    unbounded: bool  # the annotation does not limit the depth
    numbers: bool  # there may be numbers inside
    text: bool  # the annotation accepts plain text, which comes back unchanged
    has_fields: bool  # there are classes inside, which may have lost a field that was recorded
    secrets: bool  # there may be secrets inside, which only a store that encrypts may keep

    def encode(self, value: object) -> bytes:
        """Encode a value that is known to come back equal. Raises NotSerializable."""
        return self.round(value)[0]

    def round(self, value: object) -> tuple[bytes, Any]:
        """Encode a value and decode it again, as a step must return it. Raises NotSerializable."""
        return self.try_plain(value) or self._walk(value)

    def try_plain(self, value: object) -> tuple[bytes, Any] | None:
        """Take the fast path; None where only the walk can decide."""
        if self.decoder is not None:
            try:
                data = _ENCODE(value)
                if self.text and type(value) is str:
                    is_plain = _TAG_MARK not in data and _NUL_MARK not in data and len(data) <= MAX_BYTES
                    return (data, value) if is_plain else None
                if _TAG_MARK not in data:
                    decoded = self.decoder.decode(data)
                    if self._came_back(value, decoded) and not self._doubtful(data, decoded):
                        return data, decoded
            except Exception:  # noqa: BLE001 - the walk decides, and finds the path to the bad value
                return None
        return None

    def recall(self, data: bytes, *, is_whole: bool = True) -> Any:
        """Decode a recorded value, even if its class refuses it by now (see `trusted`).

        Raises Divergence when it no longer has the annotation's shape, or has a key that no field claims any
        more (unless not `is_whole`: others wrote it); Corrupt when we did not write it.
        """
        try:
            return self.decode(data, is_whole=is_whole)
        except Divergence:
            trusted = self._trust(data)
            if trusted is None:
                raise
            return trusted[0]

    def require_keeping(self, what: str, run: str) -> None:
        """Refuse to let others give a value that may hold secrets to a store in plain text.

        Raises NotSerializable.
        """
        if self.secrets and not KEPT.get():
            raise NotSerializable(f"{what} would keep a secret in plain text", run=run, remedy=ENCRYPT)

    def _trust(self, data: bytes) -> tuple[Any] | None:
        """Load without validators and hooks; None when the result is not what was recorded."""
        before = TRUSTING.set(True)
        try:
            tree = _PARSE(data)
            value = self.shape.load(tree)
            dumped = _PARSE(_ENCODE(self.shape.dump(value, MAX_DEPTH)))
        except Exception:  # noqa: BLE001 - the caller raises the refusal that it already has
            return None
        finally:
            TRUSTING.reset(before)
        # Without validators another member of a union may load: only what dumps to the record counts.
        return (value,) if holds(tree, dumped) else None

    def received(self, value: object) -> bytes | None:
        """Encode what was decoded of others' data: it has no key that no field claims.

        None where there are neither fields nor secrets, or the value cannot be encoded.
        """
        try:
            return self.encode(value) if self.has_fields or self.secrets else None
        except NotSerializable:
            return None

    def decode(self, data: bytes, *, is_whole: bool = False) -> Any:
        """Decode stored bytes, with the validators of its class.

        Raises Divergence when they no longer fit the annotation, or with `is_whole` when they have a key that
        no field claims; Corrupt when we did not write them.
        """
        if self.decoder is not None and _TAG_MARK not in data:
            try:
                decoded = self.decoder.decode(data)
            except Exception:  # noqa: BLE001, S110 - the walk below decides misfit or damage, and finds the path
                pass
            else:
                if self._suspicious(data):
                    self._check(decoded)
                if self.unbounded and _may_be_deep(data) and _deep(decoded):
                    raise Corrupt(f"a stored value is nested deeper than {MAX_DEPTH}")
                if is_whole and self.has_fields:
                    self._require_claimed(data, decoded)
                return decoded
        if is_whole and self.has_fields:
            before = WHOLE.set(True)
            try:
                return self._load(data)
            finally:
                WHOLE.reset(before)
        return self._load(data)

    def _require_claimed(self, data: bytes, decoded: object) -> None:
        """Refuse data of which msgspec's decoder skipped a key. Raises Divergence."""
        again = _ENCODE(decoded)
        if again == data:  # nothing was skipped
            return
        tree, lost = _PARSE(data), None
        before = WHOLE.set(True)
        try:
            self.shape.load(tree)
        except Unclaimed as bad:
            lost = bad
        except Exception:  # noqa: BLE001 - the decoder reads more than the walk, such as numbers as text
            lost = lost_key(self.shape.label, tree, _PARSE(again))
        finally:
            WHOLE.reset(before)
        if lost is not None:
            raise _no_longer_fits(lost)

    def _check(self, decoded: object) -> None:
        """Refuse a decoded value that could not have been stored. Raises Corrupt."""
        try:
            self.shape.dump(decoded, MAX_DEPTH)
        except Misfit as bad:
            raise Corrupt(f"stored data is damaged: {bad.what}", path=bad.path()) from None

    def _came_back(self, value: Any, decoded: Any) -> bool:
        if self.untyped:
            # Version 2 writes no references, so the dump depends only on types and contents; it fails for
            # anything but exact built-ins. We only dump with marshal, never load.
            return marshal.dumps(decoded, 2) == marshal.dumps(value, 2)
        answer = decoded == value
        return answer is True or _is_yes(answer)

    def _doubtful(self, data: bytes, decoded: object) -> bool:
        if len(data) > MAX_BYTES or self._suspicious(data):
            return True
        if not self.unbounded or data[0] == _QUOTE:
            return False
        return _may_be_deep(data) and (not self.untyped or _deep(decoded))

    def _suspicious(self, data: bytes) -> bool:
        """Return whether there may be a NUL or a number beyond 64 bits; a single text has no numbers."""
        return _NUL_MARK in data or (
            self.numbers and data[0] != _QUOTE and _LONG_NUMBER in data.translate(_DIGITS_TO_ZERO)
        )

    def _walk(self, value: object) -> tuple[bytes, Any]:
        try:
            data = _ENCODE(self.shape.dump(value, MAX_DEPTH))
            decoded = self.decode(data) if len(data) <= MAX_BYTES else None
        except Misfit as bad:
            raise not_serializable(bad) from None
        except (Divergence, Corrupt) as bad:
            raise NotSerializable(
                f"it does not come back: {bad.what}",
                path=bad.path or "$",
                remedy="Check the class's own __init__ hooks",
            ) from bad
        if len(data) > MAX_BYTES:
            raise NotSerializable(
                f"cannot store {len(data)} bytes, over the limit of {MAX_BYTES}",
                path="$",
                remedy="Store a reference to it instead",
            )
        if not equal(decoded, value):
            raise not_serializable(_first_difference(value, decoded))
        return data, decoded

    def _load(self, data: bytes) -> Any:
        try:
            return self.shape.load(_PARSE(data))
        except Malformed as bad:
            raise Corrupt(f"stored data is damaged: {bad.what}", path=bad.path()) from None
        except Misfit as bad:
            raise _no_longer_fits(bad) from None
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as bad:
            raise Corrupt(f"stored data is not JSON that we wrote: {bad}") from None


def not_serializable(bad: Misfit) -> NotSerializable:
    """Return the error for users that a misfit becomes."""
    if isinstance(bad, TooDeep):
        bad = bad.settle()
    return NotSerializable(f"it cannot be kept: {bad.what}", path=bad.path(), remedy=bad.remedy or None)


def _no_longer_fits(bad: Misfit) -> Divergence:
    return Divergence(
        f"a recorded value no longer fits its annotation: {bad.what}",
        path=bad.path(),
        remedy=_KEEP if isinstance(bad, Unclaimed) else _RESTORE,
    )


def _may_be_deep(data: bytes) -> bool:
    # Brackets in text count too: it may doubt a flat value, but never miss a deep one.
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH


def _deep(value: object) -> bool:
    """Return whether containers nest deeper than the limit, level by level."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [
            item
            for holder in level
            for item in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(item, _CONTAINERS)
        ]
    return bool(level)


def _is_yes(answer: Any) -> bool:
    """Return whether a comparison says yes; comparing numpy's numbers returns numpy's own bool type."""
    return answer is True or (type(answer).__module__ == "numpy" and answer.item() is True)


def equal(left: object, right: object) -> bool:
    """Compare two values of users' types; an __eq__ that raises or returns no bool counts as unequal."""
    try:
        return _is_yes(left == right)
    except Exception:  # noqa: BLE001 - a class whose __eq__ raises is not equal
        return False


def _first_difference(value: object, decoded: object) -> Misfit:
    """Find the innermost part that did not come back equal."""
    for step, left, right in _pairs(value, decoded):
        if not equal(left, right):
            return _first_difference(left, right).under(step, value)
    return Misfit(
        f"a value does not come back equal: {ascii(value)[:80]} became {ascii(decoded)[:80]}",
        "Correct the value or the annotation",
    )


def _pairs(value: Any, decoded: Any) -> Iterator[tuple[str, object, object]]:
    if type(value) is not type(decoded):
        return
    if isinstance(value, dict):
        yield from ((step_to(key), held, decoded.get(key)) for key, held in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{count}]", *pair) for count, pair in enumerate(zip(value, decoded, strict=False)))
    elif hasattr(value, "__dict__"):
        yield from ((step_to(key), held, vars(decoded).get(key)) for key, held in vars(value).items())


# -------------------------------------------------------------------------------------------- building


def codec_for(annotation: Any = MISSING, *, where: str = "") -> Codec:
    """Return the codec of an annotation. Raises UsageError, naming `where`, for what cannot be stored."""
    try:
        try:
            return _cached(annotation)
        except TypeError:  # an annotation that cannot be hashed cannot be cached
            return _build(annotation)
    except UsageError as bad:
        what = f"{where}: {bad.what}" if where else bad.what
        raise UsageError(what, path=bad.path, remedy=bad.remedy) from bad.__cause__


def _build(annotation: Any) -> Codec:
    shape = shape_of(annotation)
    inside: dict[int, Shape] = {}
    recursive = _survey(shape, inside, set())
    untyped = any(isinstance(one, Untyped) for one in inside.values())
    walked = any(
        isinstance(one, Model) or _equality_lies(one) or _mistakes_fields(one) for one in inside.values()
    )
    return Codec(
        shape=shape,
        decoder=None if walked else _decoder(annotation),
        untyped=untyped,
        unbounded=untyped or recursive,
        numbers=untyped or id(INT) in inside or id(FLOAT) in inside,
        text=any(annotation is one for one in (str, Any, MISSING)),
        has_fields=any(isinstance(one, ClassShape | Model) for one in inside.values()),
        secrets=any(
            isinstance(one, SecretShape) or (isinstance(one, Model) and names_secret(one.type))
            for one in inside.values()
        ),
    )


# Bounded: code that makes types at run time (generic models) would grow it without end.
_cached = lru_cache(maxsize=4096)(_build)


def _decoder(annotation: Any) -> msgspec.json.Decoder[Any] | None:
    try:
        return msgspec.json.Decoder(Any if annotation is MISSING else annotation)
    except Exception:  # noqa: BLE001 - what msgspec cannot do, the walk can
        return None


def _mistakes_fields(shape: Shape) -> bool:
    """Return whether msgspec may skip fields of this shape, or write what is no field.

    Of an attrs object it writes every attribute, a cached property too. Of a struct with `omit_defaults` it
    leaves out a field that equals its default, which would change with the default. Its decoder compares a
    key with the UTF-8 form of the field's name that Python has cached. For a name that is not ASCII there is
    none until something in the process has encoded it: a first execution has, a replay has not. The fields
    would get their defaults, without an error. (Structs encode their names beforehand.)
    """
    if not isinstance(shape, ClassShape):
        return False
    if issubclass(shape.type, msgspec.Struct):
        return shape.type.__struct_config__.omit_defaults
    if "__attrs_attrs__" in vars(shape.type):
        known = {"__weakref__", *(one.name for one in shape.fields)}
        slots = {name for one in shape.type.__mro__ for name in vars(one).get("__slots__", ())}
        if shape.type.__dictoffset__ or not slots <= known:
            return True
    return not all(one.key.isascii() for one in shape.fields)


def _equality_lies(shape: Shape) -> bool:
    """Return whether a wrong value of this shape could compare equal, so that the walk must decide."""
    if isinstance(shape, ClassShape):
        return not shape.exact_eq
    if isinstance(shape, Items):
        return shape.tagged is frozenset  # a frozenset equals the set that it would come back as
    if isinstance(shape, FixedTuple):
        return shape.type is not tuple  # equal to any tuple of the same items
    if isinstance(shape, Members):  # a literal of an enum's member never gets here: msgspec has none
        return issubclass(shape.type, str | int) or shape.type.__eq__ is not object.__eq__
    if isinstance(shape, Flags):
        return True
    # A naive time comes back equal; a number is equal to a Decimal, a bytearray to bytes.
    return any(shape is one for one in (DATETIME, TIME, DECIMAL, BYTES))


def _survey(shape: Shape, inside: dict[int, Shape], above: set[int]) -> bool:
    """Collect all shapes inside a shape, and return whether one contains itself."""
    if id(shape) in inside:
        return id(shape) in above
    inside[id(shape)] = shape
    above.add(id(shape))
    recursive = [_survey(part, inside, above) for part in shape.parts]
    above.remove(id(shape))
    return any(recursive)


UNTYPED_CODEC: Final = codec_for()
