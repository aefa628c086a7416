"""Shapes of users' types: classes with fields, enums, literals, pydantic models, and unions of anything.

Classes come only from annotations. In data, a member of an ambiguous union is marked with its label ({"$":
"is", "of": "Cat", "v": …}), and the label is compared only with the members in the annotation. Data may lack
fields that have defaults. A key that no field claims is skipped in what a person or another program gives;
in what we recorded it is a value that the code would lose, and is refused (`WHOLE`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from ninelives.core.secret import holds_secret, masked_text, plain_tree, with_secrets
from ninelives.core.values.containers import UNTYPED
from ninelives.core.values.scalars import (
    ANNOTATE,
    INT,
    MAX_DEPTH,
    TAG,
    Malformed,
    Misfit,
    Shape,
    TooDeep,
    expected,
    kind_of,
    step_to,
    type_name,
    unfit,
)
from ninelives.core.values.trusted import TRUSTING, lenient_validator

ABSENT: Final = object()
WHOLE: Final = ContextVar("ninelives_whole", default=False)
"""Whether what is loaded was recorded by us, so that every key must belong to a field."""


class Unclaimed(Misfit):
    """A recorded key that no field claims: the field was renamed or removed."""

    def __init__(self, label: str, key: object) -> None:
        super().__init__(f"the recorded {label} has {ascii(key)[:60]}, which is no field of it any more")
        self.under(step_to(key), None)


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its attribute, its key in JSON, and the default for old data that lacks it."""

    name: str
    key: str
    shape: Shape
    missing: Callable[[], object] | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ClassShape:
    """A dataclass, Struct, attrs class or TypedDict. `fields` is filled last: types may be recursive."""

    label: str
    type: type
    make: Callable[[dict[str, Any]], object]
    exact_eq: bool = True
    bare: Callable[[dict[str, Any]], object] | None = None  # makes an object without its class's hooks
    tag: tuple[str, object] | None = None  # the key and the value by which msgspec marks a struct's class
    is_array: bool = False  # msgspec writes the fields in order, without keys
    fields: list[Field] = field(default_factory=list)

    kinds = frozenset({"dict"})

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(one.shape for one in self.fields)

    def takes(self, value: object) -> bool:
        return isinstance(value, self.type)

    def dump(self, value: Any, depth: int) -> object:
        if depth <= 0:
            raise TooDeep
        held = self._read(value)
        out: dict[str, object] = {}
        for one in self.fields:
            if one.optional and one.name not in held:
                continue
            try:
                out[one.key] = one.shape.dump(held[one.name], depth - 1)
            except KeyError:
                raise Misfit(f"{self.label} has no {one.name!r}", "Set every field").under(
                    "", value
                ) from None
            except Misfit as bad:
                raise bad.under(step_to(one.name), value)  # noqa: B904 - the same error, going up
        return out

    def _read(self, value: Any) -> dict[str, Any]:
        if self.type is dict:
            if not isinstance(value, dict):
                raise unfit(self.label, value)
            if more := value.keys() - {one.name for one in self.fields}:
                raise Misfit(f"{self.label} has no key {min(map(repr, more))}", "Add it to the TypedDict")
            return value
        if type(value) is not self.type:
            remedy = f"Annotate the union: {self.label} | {type_name(value)}"
            raise (
                unfit(self.label, value)
                if not self.takes(value)
                else Misfit(f"a {type_name(value)} would come back as a {self.label}", remedy)
            )
        return {one.name: getattr(value, one.name) for one in self.fields if hasattr(value, one.name)}

    def _keys(self) -> list[str]:
        return [*([self.tag[0]] if self.tag else ()), *(one.key for one in self.fields)]

    def _by_key(self, items: list[Any]) -> dict[str, Any]:
        keys = self._keys()
        if len(items) > len(keys) and WHOLE.get():
            raise Unclaimed(self.label, len(keys))
        return dict(zip(keys, items, strict=False))

    def load(self, data: Any) -> object:
        if self.is_array and type(data) is list:
            data = self._by_key(data)
        if kind_of(data) != "dict":
            raise expected(self.label, data)
        if WHOLE.get() and (more := data.keys() - set(self._keys())):
            raise Unclaimed(self.label, min(more))
        values: dict[str, object] = {}
        for one in self.fields:
            if one.key in data:
                try:
                    values[one.name] = one.shape.load(data[one.key])
                except Misfit as bad:
                    raise bad.under(step_to(one.name), data)  # noqa: B904 - the same error, going up
            elif one.missing is not None:
                values[one.name] = one.missing()
            elif not one.optional:
                raise Misfit(f"the recorded {self.label} has no {one.name!r}").under(step_to(one.name), data)
        try:
            return self.make(values)
        except Exception as bad:
            if self.bare is not None and TRUSTING.get():
                return self.bare(values)
            raise Misfit(f"{self.label} refuses the recorded values: {bad}") from bad


@dataclass(frozen=True, slots=True)
class Members:
    """An Enum by value (by name where values are not all text or all int), or the choices of a Literal."""

    label: str
    type: type
    by_data: dict[Any, Any]
    kinds: frozenset[str]
    parts: tuple[Shape, ...] = ()

    def takes(self, value: object) -> bool:
        return self._data_of(value) is not None

    def _data_of(self, value: object) -> tuple[object] | None:
        if not isinstance(value, str | int | enum.Enum | None):
            return None
        for (_, data), member in self.by_data.items():
            if member is value or _stands_for(value, member, data):
                return (data,)
        return None

    def dump(self, value: Any, depth: int) -> object:  # noqa: ARG002 - a leaf has no depth
        found = self._data_of(value)
        if found is None:
            raise Misfit(
                f"{ascii(value)[:60]} is not one of {self.label}", "Correct the value or the annotation"
            )
        return found[0]

    def load(self, data: Any) -> object:
        try:
            return self.by_data[type(data), data]
        except (KeyError, TypeError):
            raise expected(self.label, data) from None


def _stands_for(value: object, member: object, data: object) -> bool:
    """Return whether a value may stand for a member: "good" for Mood.GOOD, Size.LARGE for Literal[2]."""
    if isinstance(member, enum.Enum):  # members of two enums may be equal without being the same
        return type(value) is type(data) and isinstance(member, str | int) and value == data == member
    return bool(member == value) and isinstance(value, bool) == isinstance(member, bool)


@dataclass(frozen=True, slots=True)
class Flags:
    """An enum.Flag, whose combinations are values too: stored as its int."""

    label: str
    type: Any
    parts: tuple[Shape, ...] = ()

    kinds = frozenset({"int"})

    def takes(self, value: object) -> bool:
        return isinstance(value, self.type)

    def dump(self, value: Any, depth: int) -> object:
        if not self.takes(value):
            raise unfit(self.label, value)
        return INT.dump(int(value.value), depth)

    def load(self, data: Any) -> object:
        if type(data) is not int:
            raise expected(self.label, data)
        try:
            return self.type(INT.load(data))
        except ValueError:
            raise expected(self.label, data) from None


@dataclass(frozen=True, slots=True)
class Model:
    """A pydantic model, written and validated by pydantic, in its JSON form and by field name."""

    label: str
    type: Any
    options: dict[str, bool]
    kinds: frozenset[str]
    parts: tuple[Shape, ...] = ()

    def takes(self, value: object) -> bool:
        return isinstance(value, self.type)

    def dump(self, value: Any, depth: int) -> object:
        if type(value) is not self.type:
            raise unfit(self.label, value)
        try:
            # Before it is written: in JSON, a naive time is
            # text like any other and could no longer be noticed.
            python = value.model_dump(round_trip=True, warnings=False)
            refuse_naive(python, depth)
            # pydantic masks secrets in JSON: the shape of secrets decides what becomes of them.
            tree = with_secrets(self._tree(value), python)
        except Misfit:
            raise
        except Exception as bad:
            raise Misfit(f"pydantic cannot write this {self.label}: {bad}", ANNOTATE) from bad
        return UNTYPED.dump(tree, depth)

    def _tree(self, value: Any) -> Any:
        return value.model_dump(
            mode="json", round_trip=True, warnings=False, by_alias="by_name" not in self.options
        )

    def load(self, data: Any) -> object:
        tree = UNTYPED.load(data)
        try:
            lenient = lenient_validator(self.type) if TRUSTING.get() else None
            validate = self.type.model_validate_json if lenient is None else lenient.validate_json
            made = validate(msgspec.json.encode(plain_tree(tree)), **self.options)
            refuse_naive(made.model_dump(round_trip=True, warnings=False), MAX_DEPTH)
            lost = lost_key(self.label, tree, self._tree(made)) if WHOLE.get() else None
        except Misfit:
            raise
        except Exception as bad:
            if holds_secret(tree):  # pydantic shows its input, in which secrets are plain text
                raise Misfit(f"{self.label} refuses the recorded values: {type(bad).__name__}") from None
            raise Misfit(f"{self.label} refuses the recorded values: {masked_text(str(bad))}") from bad
        if lost is not None and not self._consumes(tree):
            raise lost
        return made

    def _consumes(self, tree: Any) -> bool:
        """Return whether a validator of the model takes every key: it may rename those of old data."""
        try:
            self.type.model_validate_json(
                msgspec.json.encode(plain_tree(tree)), extra="forbid", **self.options
            )
        except Exception:  # noqa: BLE001 - refused, or a pydantic before 2.12, which cannot say
            return False
        return True


def lost_key(label: str, recorded: Any, loaded: Any) -> Unclaimed | None:
    """Find a key that was recorded and that the value which was made of it, dumped again, does not have."""
    if type(recorded) is dict and type(loaded) is dict:
        for key, held in recorded.items():
            if key not in loaded:
                return Unclaimed(label, key)
            if (lost := lost_key(label, held, loaded[key])) is not None:
                lost.under(step_to(key), recorded)
                return lost
    if type(recorded) is list and type(loaded) is list:
        for count, held in enumerate(recorded):
            lost = lost_key(label, held, loaded[count]) if count < len(loaded) else None
            # A set is dumped in any order.
            if lost is not None and all(lost_key(label, held, one) is not None for one in loaded):
                lost.under(f"[{count}]", recorded)
                return lost
    return None


def refuse_naive(value: object, depth: int) -> None:
    """Refuse a naive datetime or time in plain containers; pydantic would write it without an error."""
    if isinstance(value, dt.datetime | dt.time):
        if value.utcoffset() is None:
            name = type(value).__name__
            raise Misfit(f"a {name} without a time zone", "Use an aware one: datetime.now(timezone.utc)")
        return
    entries: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        entries = ((step_to(name), held) for name, held in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        entries = ((f"[{count}]", held) for count, held in enumerate(value))
    for step, held in entries:
        if depth <= 0:
            raise TooDeep
        try:
            refuse_naive(held, depth - 1)
        except Misfit as bad:
            raise bad.under(step, value)  # noqa: B904 - the same error, going up


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """Stands for a recursive type alias while it is being built."""

    label: str
    found: list[Shape] = field(default_factory=list)

    @property
    def kinds(self) -> frozenset[str]:
        return self.found[0].kinds

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(self.found)

    @property
    def type(self) -> Any:
        return getattr(self.found[0], "type", None)

    def takes(self, value: object) -> bool:
        return self.found[0].takes(value)

    def dump(self, value: Any, depth: int) -> object:
        return self.found[0].dump(value, depth)

    def load(self, data: Any) -> object:
        return self.found[0].load(data)


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several. A member is marked in data where another could write the same kind of JSON."""

    label: str
    members: dict[str, Shape]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"$is"}).union(*(member.kinds for member in self.members.values()))

    @property
    def parts(self) -> tuple[Shape, ...]:
        return tuple(self.members.values())

    def takes(self, value: object) -> bool:
        return any(member.takes(value) for member in self.members.values())

    def _ambiguous(self, label: str) -> bool:
        kinds = self.members[label].kinds
        return any(kinds & other.kinds for name, other in self.members.items() if name != label)

    def dump(self, value: Any, depth: int) -> object:
        candidates = [name for name, member in self.members.items() if member.takes(value)]
        # Try the member of the value's exact type first: a bool is not an int, a Dog is not an Animal.
        candidates.sort(key=lambda name: getattr(self.members[name], "type", None) is not type(value))
        refusal: Misfit | None = None
        for name in candidates:
            try:
                tree = self.members[name].dump(value, depth)
            except Misfit as bad:
                refusal = refusal or bad
            else:
                return {TAG: "is", "of": name, "v": tree} if self._ambiguous(name) else tree
        raise refusal or unfit(self.label, value)

    def load(self, data: Any) -> object:
        kind = kind_of(data)
        if kind == "$is":
            if data.keys() != {TAG, "of", "v"} or not isinstance(data["of"], str):
                raise Malformed("a malformed mark of a union's member")
            if data["of"] in self.members:
                return self.members[data["of"]].load(data["v"])
        return self._only_fit(data, kind)

    def _only_fit(self, data: object, kind: str) -> object:
        """Load unmarked data, written when the annotation named fewer types: exactly one must fit."""
        claims = [member for member in self.members.values() if kind in member.kinds]
        if not claims and kind == "int":
            # The annotation may have been int when the value was recorded, and is float now.
            claims = [member for member in self.members.values() if "float" in member.kinds]
        if isinstance(data, dict):
            claims = [member for member in claims if _has_tag(member, data)] or claims
        fitting: list[object] = []
        refusal: Misfit | None = None
        lost: list[Unclaimed] = []  # these members fit too, but for a key
        for member in claims:
            try:
                fitting.append(member.load(data))
            except Malformed:
                raise
            except Unclaimed as bad:
                lost.append(bad)
            except Misfit as bad:
                refusal = refusal or bad
        if lost and not fitting:
            raise lost[0]
        if len(fitting) == 1 and not lost:
            return fitting[0]
        if fitting:
            raise Misfit(f"the recorded value fits several members of {self.label}")
        raise refusal or expected(self.label, data)


def _has_tag(member: Shape, data: dict[str, Any]) -> bool:
    tag = getattr(member, "tag", None)
    return tag is not None and data.get(tag[0]) == tag[1]


# --------------------------------------------------------------------------------------------- fields


class DeclaredField(NamedTuple):
    """A field: its attribute, its key in JSON, and its default or the function that makes one, if any."""

    name: str
    key: str
    default: object
    factory: Callable[[], object] | None

    @property
    def missing(self) -> Callable[[], object] | None:
        """What returns the value for data that lacks the field; None where it is required."""
        return self.factory if self.default is ABSENT else lambda: self.default


def fields_of(kind: Any) -> list[DeclaredField] | None:
    """Return the declared fields of a class; None if it is not of these libraries."""
    if issubclass(kind, msgspec.Struct):
        return [_field(one, one.encode_name) for one in msgspec.structs.fields(kind)]
    if dataclasses.is_dataclass(kind):
        return [_field(one, one.name) for one in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [_attrs_field(one) for one in kind.__attrs_attrs__]
    return None


def _field(one: Any, key: str) -> DeclaredField:
    default, factory = one.default, one.default_factory
    return DeclaredField(
        one.name, key, ABSENT if _is_none(default) else default, None if _is_none(factory) else factory
    )


def _is_none(default: object) -> bool:
    return default is dataclasses.MISSING or default is msgspec.NODEFAULT


def _attrs_field(one: Any) -> DeclaredField:
    if hasattr(one.default, "takes_self"):  # a factory; one that takes the object makes nothing without it
        return DeclaredField(
            one.name, one.name, ABSENT, None if one.default.takes_self else one.default.factory
        )
    return DeclaredField(one.name, one.name, ABSENT if repr(one.default) == "NOTHING" else one.default, None)
