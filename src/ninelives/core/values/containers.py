"""Shapes of containers, and of values without an annotation.

An untyped value must consist of exact built-in types: only then does the data say what it was. Lists and
dicts with text keys are plain JSON; tuples, sets, other dicts and the tagged scalars carry a tag. A dict
that has the key "$" is written as pairs, so that no user's data can be mistaken for a tag.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import GeneratorType
from typing import Any, Final

from ninelives.core.secret import Secret, is_secret
from ninelives.core.values.scalars import (
    ANNOTATE,
    ENCRYPT,
    JSON_SCALARS,
    SCALARS,
    SECRET,
    SECRET_TAG,
    TAG,
    TAGGED_SCALARS,
    TEXT,
    Malformed,
    Misfit,
    Shape,
    TooDeep,
    dump_items,
    expected,
    kind_of,
    load_items,
    step_to,
    tag,
    type_name,
    unfit,
    untag,
)

BUILTINS: Final = (str, int, float, bytes, list, tuple, dict, set, frozenset)


def _gather(make: Callable[[list[Any]], object], items: list[object]) -> object:
    try:
        return make(items)
    except TypeError as bad:
        raise Malformed(f"an item that cannot be in a set or be a key: {bad}") from None


@dataclass(frozen=True, slots=True)
class Items:
    """list, tuple[T, ...], set, frozenset, and the abstract Sequence and Set, which accept two of them."""

    label: str
    item: Shape
    plain: type
    tagged: type | None = None

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"list"} if self.tagged is None else {"list", f"${self.tagged.__name__}"})

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.item,)

    @property
    def type(self) -> type:
        return self.plain

    def takes(self, value: object) -> bool:
        if self.plain in (set, frozenset):  # they compare equal, so either comes back as the annotated one
            return isinstance(value, set | frozenset)
        return isinstance(value, self.plain) or (self.tagged is not None and isinstance(value, self.tagged))

    def dump(self, value: Any, depth: int) -> object:
        if not self.takes(value):
            raise unfit(self.label, value)
        items = dump_items(value, self.item.dump, depth)
        return (
            items
            if isinstance(value, self.plain) or self.tagged is None
            else tag(self.tagged.__name__, items)
        )

    def load(self, data: Any) -> object:
        make = self.plain
        if self.tagged is not None and kind_of(data) == f"${self.tagged.__name__}":
            make, data = self.tagged, untag(data, self.tagged.__name__)
        if type(data) is not list:
            raise expected(self.label, data)
        items = load_items(data, self.item.load)
        return items if make is list else _gather(make, items)


@dataclass(frozen=True, slots=True)
class FixedTuple:
    """tuple[A, B] and NamedTuple; missing last fields of a NamedTuple get their defaults."""

    label: str
    parts: tuple[Shape, ...]
    make: Callable[[list[Any]], object] = tuple
    required: int = -1
    type: type = tuple

    kinds = frozenset({"list"})

    def takes(self, value: object) -> bool:
        if self.type is not tuple:  # NamedTuples of two classes compare equal: insist on the exact class
            return type(value) is self.type
        return isinstance(value, tuple) and len(value) == len(self.parts)

    def dump(self, value: Any, depth: int) -> object:
        if not self.takes(value):
            raise unfit(self.label, value)
        shapes = iter(self.parts)
        return dump_items(value, lambda item, below: next(shapes).dump(item, below), depth)

    def load(self, data: Any) -> object:
        least = len(self.parts) if self.required < 0 else self.required
        if type(data) is not list or not least <= len(data) <= len(self.parts):
            raise expected(f"{self.label} of {len(self.parts)} items", data)
        shapes = iter(self.parts)
        return self.make(load_items(data, lambda item: next(shapes).load(item)))


def dump_pairs(
    value: Mapping[Any, Any],
    key: Callable[[Any, int], object],
    item: Callable[[Any, int], object],
    depth: int,
) -> object:
    """Dump a dict: a plain object when its keys are text and none is "$", else tagged pairs."""
    if depth <= 0:
        raise TooDeep
    depth -= 1
    pairs: list[tuple[object, object]] = []
    name: object = None
    try:
        for name, held in value.items():
            pairs.append((key(name, depth), item(held, depth)))
    except Misfit as bad:
        raise bad.under(step_to(name), value)  # noqa: B904 - the same error, going up
    if all(type(name) is str and name != TAG for name, _ in pairs):
        return dict(pairs)
    return tag("dict", [list(pair) for pair in pairs])


def load_pairs(data: Any, key: Callable[[Any], object], item: Callable[[Any], object]) -> dict[Any, Any]:
    """Load a dict from either of its two forms. Raises Malformed."""
    pairs = untag(data, "dict") if TAG in data else [list(pair) for pair in data.items()]
    out: dict[Any, Any] = {}
    if type(pairs) is not list:
        raise Malformed("a dict without its pairs")
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2:
            raise Malformed("a dict with something else than pairs")
        try:
            name = key(pair[0])
            out[name] = item(pair[1])
        except TypeError as bad:
            raise Malformed(f"a key that cannot be one: {bad}") from None
        except Misfit as bad:
            raise bad.under(step_to(pair[0]), data)  # noqa: B904 - the same error, going up
    return out


@dataclass(frozen=True, slots=True)
class Dict:
    """dict[K, V] and Mapping[K, V]."""

    label: str
    key: Shape
    item: Shape

    kinds = frozenset({"dict", "$dict"})

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.key, self.item)

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def dump(self, value: Any, depth: int) -> object:
        if not isinstance(value, dict):
            raise unfit(self.label, value)
        return dump_pairs(value, self.key.dump, self.item.dump, depth)

    def load(self, data: Any) -> object:
        if kind_of(data) not in self.kinds:
            raise expected(self.label, data)
        return load_pairs(data, self.key.load, self.item.load)


def refuse(value: object, depth: int) -> object:  # noqa: ARG001 - the form of every dump
    """Refuse a value that comes back equal only with an annotation."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        raise Misfit(f"an enum member ({kind.__qualname__}) where no type is annotated", ANNOTATE)
    if isinstance(value, BUILTINS):
        raise Misfit(
            f"{kind.__qualname__} is a subclass of a built-in type, where none is annotated", ANNOTATE
        )
    if (
        hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__struct_fields__")
        or hasattr(kind, "model_dump")
    ):
        raise Misfit(f"a record ({kind.__qualname__}) where no type is annotated", ANNOTATE)
    if is_secret(value):
        raise Misfit(f"a secret ({kind.__qualname__}) where no type is annotated", f"Annotate it. {ENCRYPT}")
    if isinstance(value, GeneratorType):
        raise Misfit("a generator, which can be read only once", "Return a list")
    raise Misfit(f"a value of type {kind.__qualname__} cannot be stored", "Return plain data, or a dataclass")


@dataclass(frozen=True, slots=True)
class Untyped:
    """A value without an annotation; `other` handles what is not an exact built-in."""

    label: str = "any plain value"
    other: Callable[[Any, int], object] = refuse
    parts: tuple[Shape, ...] = ()

    kinds = frozenset({"null", "bool", "int", "float", "str", "list", "dict"})

    def takes(self, value: object) -> bool:  # noqa: ARG002 - takes anything, and refuses in `dump`
        return True

    def dump(self, value: Any, depth: int) -> object:
        kind = type(value)
        if kind in JSON_SCALARS:
            return JSON_SCALARS[kind].write(value)
        if kind is dict:
            return dump_pairs(value, self.dump, self.dump, depth)
        if kind is list:
            return dump_items(value, self.dump, depth)
        if kind in _GATHERED:
            return tag(kind.__name__, dump_items(value, self.dump, depth))
        if kind in TAGGED_SCALARS:
            return tag(SCALARS[kind].label, TAGGED_SCALARS[kind].write(value))
        if kind is Secret and self.other is refuse:
            return SECRET.dump(value, depth)
        return self.other(value, depth)

    def load(self, data: Any) -> object:
        kind = type(data)
        if kind is list:
            return load_items(data, self.load)
        if kind is not dict:
            return JSON_SCALARS[kind].load(data)
        if TAG not in data:
            return load_pairs(data, TEXT.load, self.load)
        return self._load_tag(data)

    def _load_tag(self, data: dict[str, Any]) -> object:
        name = data[TAG]
        if name == "dict":
            return load_pairs(data, self.load, self.load)
        if name == SECRET_TAG:
            return SECRET.load(data)
        value = untag(data, *_BY_TAG)
        known = _BY_TAG[name]
        if isinstance(known, type):
            return _gather(known, load_items(value, self.load))
        try:
            return known.load(value)
        except Misfit as bad:
            raise Malformed(f"a tag {type_name(value)} {bad.what}") from None


_GATHERED: Final = (tuple, set, frozenset)
_BY_TAG: Final[dict[str, Any]] = {kind.__name__: kind for kind in _GATHERED} | {
    scalar.label: scalar for scalar in TAGGED_SCALARS.values()
}
UNTYPED: Final = Untyped()
