"""Shapes: how a value of a known type becomes a JSON tree and back. The shapes of scalars.

This is the slow, exact walk behind `codec`: it handles every type, refuses what would not come back equal,
and finds the path to it. A shape's `dump` and `load` are inverse; `load` builds only the types that the
shape names, whatever the data says. A tree consists of None, bool, int, float, str, list and dict; an object
with the key "$" is a tag, and the set of tags is closed. Pure functions: nothing here is durable, so dying
here loses nothing.
"""

from __future__ import annotations

import binascii
import datetime as dt
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from ninelives.core.secret import KEPT, Secret, masked_tree, plain_of

TAG: Final = "$"
SECRET_TAG: Final = "secret"  # noqa: S105 - its name
MAX_DEPTH: Final = 100
ANNOTATE: Final = "Annotate the type (a step's return type, a field's type), or use plain data"


class Misfit(Exception):
    """A value that a shape does not accept; collects its path on the way up."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy
        self.steps: list[str] = []
        self.holders: list[int] = []

    def under(self, step: str, holder: object) -> Misfit:
        """Add the step that led here, and the container it was in."""
        self.steps.append(step)
        self.holders.append(id(holder))
        return self

    def path(self) -> str:
        """The path from the root."""
        return "$" + "".join(reversed(self.steps))


class TooDeep(Misfit):
    """Nesting beyond the limit; a container that occurs twice on the path is a cycle."""

    def __init__(self) -> None:
        super().__init__(
            f"nested deeper than {MAX_DEPTH}", "Flatten it, or store its parts as separate steps"
        )

    def settle(self) -> Misfit:
        """Cut the path at the first container that holds itself, if there is one."""
        seen: set[int] = set()
        for count, holder in enumerate(reversed(self.holders)):
            if holder in seen:
                cycle = Misfit("a cycle: this value contains itself", "Refer to it by an id instead")
                cycle.steps = self.steps[len(self.steps) - count :]
                return cycle
            seen.add(holder)
        return self


class Malformed(Misfit):
    """Stored data that no version of ours can have written."""


def type_name(value: object) -> str:
    """Name the type of a value, for people."""
    return type(value).__qualname__


class Shape(Protocol):
    """How one annotation is stored. `kinds` are the kinds of JSON (or "$tag") that `dump` can return."""

    @property
    def label(self) -> str: ...
    @property
    def kinds(self) -> frozenset[str]: ...
    @property
    def parts(self) -> tuple[Shape, ...]: ...
    def takes(self, value: object) -> bool: ...
    def dump(self, value: Any, depth: int) -> object: ...
    def load(self, data: Any) -> object: ...


def kind_of(data: object) -> str:
    """Name the kind of JSON, or the tag, of a tree."""
    if type(data) is dict:
        return f"${data[TAG]}" if TAG in data else "dict"
    return _KINDS.get(type(data), "unknown")


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
}


def step_to(key: object) -> str:
    """The path segment for a key: `.name`, or the key quoted and shortened."""
    if isinstance(key, str) and key.isidentifier() and len(key) <= 60:
        return f".{key}"
    shown = ascii(key) if isinstance(key, str | int | float | bytes | tuple) else type_name(key)
    return f"[{shown if len(shown) <= 60 else shown[:57] + '...'}]"


def expected(label: str, data: object) -> Misfit:
    """Return the misfit for stored data of another kind than the annotation requires."""
    shown = repr(masked_tree(data))
    return Misfit(
        f"found {kind_of(data)} {shown if len(shown) <= 80 else shown[:77] + '...'}, expected {label}"
    )


def unfit(label: str, value: object) -> Misfit:
    """Return the misfit for a value of another type than the annotation."""
    return Misfit(
        f"a value of type {type_name(value)} does not fit {label}", "Correct the value or the annotation"
    )


# --------------------------------------------------------------------------------------------- scalars


def _dump_text(value: str) -> str:
    value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as bad:
            raise Misfit(
                f"the text has a lone surrogate at position {bad.start}",
                "Decode it properly, or clean it with .encode('utf-8', 'replace').decode()",
            ) from None
    if "\0" in value:
        raise Misfit(f"the text has a NUL at position {value.index(chr(0))}", "Remove it, or store bytes")
    return value


def _load_text(value: str) -> str:
    if "\0" in value:
        raise Malformed("a text with a NUL")
    return value


def _dump_int(value: int) -> int:
    if isinstance(value, bool):
        raise unfit("int", value)
    if not -(2**63) <= value < 2**63:
        raise Misfit("an int outside the 64-bit range", "Store it as a str")
    return int.__int__(value)


def _load_int(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise Malformed("an int outside the 64-bit range")
    return value


def _dump_float(value: float) -> float:
    if isinstance(value, bool):
        raise unfit("float", value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63 or float(value) != value:
            raise Misfit("an int that a float does not hold exactly", "Annotate int")
        return float(value)
    if not math.isfinite(value):
        raise Misfit(f"{float(value)} is not a number that JSON can hold", "Use None, or a str")
    return float.__float__(value)


def _dump_datetime(value: dt.datetime) -> str:
    if value.utcoffset() is None:
        raise Misfit("a datetime without a time zone", "Use an aware one: datetime.now(timezone.utc)")
    text = value.isoformat()
    # PEP 495: a local time that occurs twice equals no time of another zone, so it cannot come back equal.
    if dt.datetime.fromisoformat(text) != value:
        raise Misfit("a datetime that does not come back equal", "Convert it: value.astimezone(timezone.utc)")
    return text


def _aware(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of times that refuses those without a time zone."""

    def load(text: str) -> Any:
        value = read(text)
        if value.utcoffset() is None:
            raise ValueError("without a time zone")
        return value

    return load


def _dump_time(value: dt.time) -> str:
    if value.utcoffset() is None:
        raise Misfit(
            "a time without a time zone", "Give it a fixed one (tzinfo=timezone.utc), or store a str"
        )
    return value.isoformat()


def _dump_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Misfit(f"the Decimal {value} is not a number", "Use None, or a str")
    return str(value)


def _load_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("not a number")
    return value


def _dump_bytes(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf: one Python type, one kind of JSON."""

    label: str
    type: type
    kind: str
    write: Callable[[Any], object]
    read: Callable[[Any], object] | None = None
    parts: tuple[Shape, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({self.kind})

    def takes(self, value: object) -> bool:
        # A bool is an int in Python: it would come back as 1.
        if isinstance(value, bool) and self.type is not bool:
            return False
        # A datetime is a date in Python: stored as one, it would come back without its time.
        if isinstance(value, dt.datetime) and self.type is dt.date:
            return False
        return isinstance(value, self.type) or (self.type is float and isinstance(value, int))

    def dump(self, value: Any, depth: int) -> object:  # noqa: ARG002 - a leaf has no depth
        if not self.takes(value):
            raise unfit(self.label, value)
        return self.write(value)

    def load(self, data: Any) -> object:
        found = kind_of(data)
        if found != self.kind and not (self.kind == "float" and found == "int"):
            raise expected(self.label, data)
        if self.read is None:
            return data
        try:
            return self.read(data)
        except (ValueError, ArithmeticError, TypeError) as bad:
            raise expected(self.label, data) from bad


def _same(value: Any) -> Any:
    return value


NONE: Final = Scalar("None", type(None), "null", _same)
BOOL: Final = Scalar("bool", bool, "bool", _same)
INT: Final = Scalar("int", int, "int", _dump_int, _load_int)
FLOAT: Final = Scalar("float", float, "float", _dump_float, float)
TEXT: Final = Scalar("str", str, "str", _dump_text, _load_text)
BYTES: Final = Scalar("bytes", bytes, "str", _dump_bytes, partial(binascii.a2b_base64, strict_mode=True))
DATETIME: Final = Scalar("datetime", dt.datetime, "str", _dump_datetime, _aware(dt.datetime.fromisoformat))
DATE: Final = Scalar("date", dt.date, "str", dt.date.isoformat, dt.date.fromisoformat)
TIME: Final = Scalar("time", dt.time, "str", _dump_time, _aware(dt.time.fromisoformat))
TIMEDELTA: Final = Scalar(
    "timedelta", dt.timedelta, "str", msgspec.to_builtins, partial(msgspec.convert, type=dt.timedelta)
)
DECIMAL: Final = Scalar("Decimal", Decimal, "str", _dump_decimal, _load_decimal)
UUID_: Final = Scalar("UUID", UUID, "str", str, UUID)

JSON_SCALARS: Final = {scalar.type: scalar for scalar in (NONE, BOOL, INT, FLOAT, TEXT)}
TAGGED_SCALARS: Final = {
    scalar.type: scalar for scalar in (BYTES, DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_)
}
SCALARS: Final = JSON_SCALARS | TAGGED_SCALARS


# --------------------------------------------------------------------------------------------- secrets

ENCRYPT: Final = (
    "Pass a reference, such as its name, and read the secret from the environment inside the step; "
    "or encrypt the store: nl.Runtime(encrypt=...)"
)


@dataclass(frozen=True, slots=True)
class SecretShape:
    """nl.Secret, or pydantic's SecretStr or SecretBytes: refused, or a tag where the store encrypts.

    What a person or another program gives may be plain text, as `nl.ask(type=nl.Secret)` gets it. What we
    write is always the tag, by which error texts recognise a secret and mask it.
    """

    label: str
    type: Any
    parts: tuple[Shape, ...] = ()

    kinds = frozenset({"$secret"})

    def takes(self, value: object) -> bool:
        return type(value) is self.type

    def dump(self, value: Any, depth: int) -> object:  # noqa: ARG002 - a leaf has no depth
        if not self.takes(value):
            raise unfit(self.label, value)
        if not KEPT.get():
            raise Misfit("a secret is not written to the store in plain text", ENCRYPT)
        plain = plain_of(value)
        kind = "str" if isinstance(plain, str) else "bytes"
        text = plain if isinstance(plain, str) else binascii.b2a_base64(plain, newline=False).decode()
        return tag(SECRET_TAG, [value.name if self.type is Secret else "", kind, text])

    def load(self, data: Any) -> object:
        if type(data) is str:  # from outside: we write a tag
            return self._made(data, "")
        if kind_of(data) != "$secret":
            raise expected(self.label, data)
        found = untag(data, SECRET_TAG)
        if type(found) is not list or len(found) != 3 or not all(type(part) is str for part in found):
            raise Malformed("a malformed secret")
        name, kind, text = found
        try:
            return self._made(text if kind == "str" else binascii.a2b_base64(text, strict_mode=True), name)
        except binascii.Error:
            raise Malformed("a malformed secret") from None

    def _made(self, plain: str | bytes, name: str) -> object:
        if self.type is Secret:
            return Secret(plain, name=name)
        try:
            return self.type(plain)
        except Exception:  # noqa: BLE001 - its text may repeat the secret
            raise Misfit(f"{self.label} refuses the recorded secret") from None


SECRET: Final = SecretShape("Secret", Secret)


def secret_shape(kind: Any) -> SecretShape | None:
    """Return the shape of a class of secrets; None for any other class."""
    if kind is Secret:
        return SECRET
    return SecretShape(kind.__name__, kind) if hasattr(kind, "get_secret_value") else None


# --------------------------------------------------------------------------------------------- walking


def tag(name: str, value: object) -> dict[str, object]:
    """Write a tag."""
    return {TAG: name, "v": value}


def untag(data: dict[str, Any], *names: str) -> Any:
    """Take the value out of a tag of one of these names. Raises Malformed."""
    if data.keys() != {TAG, "v"} or data[TAG] not in names:
        raise Malformed(f"an unknown or malformed tag {ascii(data.get(TAG))[:60]}")
    return data["v"]


def dump_items(holder: Iterable[Any], dump: Callable[[Any, int], object], depth: int) -> list[object]:
    """Dump each item, one level deeper."""
    if depth <= 0:
        raise TooDeep
    depth -= 1
    out: list[object] = []
    try:
        for item in holder:
            out.append(dump(item, depth))  # noqa: PERF401 - the length of `out` is the path on failure
    except Misfit as bad:
        raise bad.under(f"[{len(out)}]", holder)  # noqa: B904 - the same error, going up
    return out


def load_items(data: object, load: Callable[[Any], object]) -> list[object]:
    """Load each item of a list. Raises Malformed when it is not a list."""
    if type(data) is not list:
        raise Malformed(f"found {kind_of(data)} where a list belongs")
    out: list[object] = []
    try:
        for item in data:
            out.append(load(item))  # noqa: PERF401 - the length of `out` is the path on failure
    except Misfit as bad:
        raise bad.under(f"[{len(out)}]", data)  # noqa: B904 - the same error, going up
    return out
