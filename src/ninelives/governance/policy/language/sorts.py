"""What is known of a value by its annotation: its sort, or one of several.

A condition is checked by these before it runs. An annotation that says nothing (Any, none at all) gives the
sort "any", whose comparisons are checked at each call instead.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import types
import typing
from collections import abc
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from ninelives.core.values.classes import fields_of


class Sort(Struct, frozen=True):
    """One sort of value. `of` is its class; `items` are the sorts of what it contains.

    `values` are all that it can be, if these are few; `low` and `high` bound a number.
    """

    name: str
    of: Any = None
    items: tuple[Sort, ...] = ()
    values: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        """The sort as people write it."""
        if self.name == "text" and self.values:
            return f"one of {', '.join(map(repr, self.values))}"
        if self.low is not None:
            return f"a number from {self.low} {f'to {self.high}' if self.high is not None else 'on'}"
        if self.of is not None:
            return str(getattr(self.of, "__name__", self.of))
        return {"none": "None", "text": "str"}.get(self.name, self.name)


Sorts = tuple[Sort, ...]
"""The sorts that a value may have: it has one of them."""

ANY, NONE, BOOL, TEXT = Sort("any"), Sort("none", type(None)), Sort("bool", bool), Sort("text")
INT, FLOAT, DECIMAL = Sort("int", int), Sort("float", float), Sort("decimal", Decimal)
MOMENT, DURATION = Sort("datetime", dt.datetime), Sort("timedelta", dt.timedelta)
DATE, UUID_ = Sort("date", dt.date), Sort("uuid", UUID)
COUNT = Sort("int", int, low=0)

_SCALARS: Final[dict[Any, Sort]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: TEXT,
    Decimal: DECIMAL,
    bytes: Sort("bytes", bytes),
    dt.datetime: MOMENT,
    dt.date: DATE,
    dt.time: Sort("time", dt.time),
    dt.timedelta: DURATION,
    UUID: UUID_,
}
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)
_LISTS: Final = (
    *(list, set, frozenset, tuple, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable),
    *(abc.Set, abc.MutableSet),
)
_DICTS: Final = (dict, abc.Mapping, abc.MutableMapping)
NUMBERS: Final = ("int", "float", "decimal")


def sorts_of(annotation: Any) -> Sorts:
    """Return the sorts of the values that an annotation allows."""
    if annotation is inspect.Parameter.empty or annotation is Any or annotation is object:
        return (ANY,)
    if annotation is None or annotation is type(None):
        return (NONE,)
    if hasattr(annotation, "__supertype__"):
        return sorts_of(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":
        return _alias(annotation)
    if isinstance(annotation, typing.TypeVar):
        return sorts_of(annotation.__bound__) if annotation.__bound__ is not None else (ANY,)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if any(origin is one for one in _WRAPPERS):
        return sorts_of(args[0])
    if origin is typing.Union or isinstance(annotation, types.UnionType):
        found = [sort for one in args for sort in sorts_of(one)]
        return (ANY,) if ANY in found else tuple(dict.fromkeys(found))
    if origin is typing.Literal:
        return _literal(args)
    return (_of_class(annotation if origin is None else origin, args),)


def _alias(annotation: Any) -> Sorts:
    """Return the sorts of a named alias; one that contains itself says nothing."""
    try:
        return sorts_of(annotation.__value__)
    except RecursionError:
        return (ANY,)


def _literal(args: tuple[Any, ...]) -> Sorts:
    by_class: dict[type, list[Any]] = {}
    for one in args:
        by_class.setdefault(type(one), []).append(one)
    found = []
    for kind, values in by_class.items():
        sort = _SCALARS.get(kind) or sorts_of(kind)[0]
        found.append(sort if sort is NONE else msgspec.structs.replace(sort, values=tuple(values)))
    return tuple(found)


def _of_class(kind: Any, args: tuple[Any, ...]) -> Sort:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if not isinstance(kind, type):
        return ANY
    if kind in _LISTS:
        inner = [sort for one in args if one is not ... for sort in sorts_of(one)]
        return Sort("list", items=tuple(dict.fromkeys(inner)) or (ANY,))
    if kind in _DICTS:
        return Sort("dict", items=sorts_of(args[1]) if len(args) == 2 else (ANY,))
    if issubclass(kind, enum.Enum):
        return Sort("member", kind)
    if is_record(kind):
        return Sort("record", kind)
    base = next((sort for one, sort in _SCALARS.items() if one is not object and issubclass(kind, one)), None)
    return base or Sort("opaque", kind)


def is_record(kind: Any) -> bool:
    """Return whether a class has declared fields that a condition can read."""
    return (
        typing.is_typeddict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "__pydantic_fields__")
        or issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


@lru_cache(maxsize=4096)
def fields_of_record(kind: Any) -> dict[str, Sorts]:
    """Return the fields of a class with their sorts. Raises NameError or TypeError for annotations that
    cannot be resolved.
    """
    hints = typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    if typing.is_typeddict(kind):
        names = list(hints)
    elif issubclass(kind, tuple):
        names = list(kind.__match_args__)
    elif hasattr(kind, "__pydantic_fields__"):
        names = list(kind.__pydantic_fields__)
    else:
        names = [one.name for one in fields_of(kind) or ()]
    return {name: sorts_of(hints.get(name, Any)) for name in names}


def optional_fields(kind: Any) -> frozenset[str]:
    """Return the fields that an object may lack: keys of a TypedDict that are not required."""
    if not typing.is_typeddict(kind):
        return frozenset()
    hints = typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    # `__optional_keys__` misses the mark where annotations are postponed.
    marked = {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    return frozenset(kind.__optional_keys__ | marked)


def label(sorts: Sorts) -> str:
    """Return sorts as people write them."""
    return " | ".join(dict.fromkeys(sort.label for sort in sorts))


def has(sorts: Sorts, *names: str) -> bool:
    """Return whether a value may be of one of these sorts."""
    return any(sort.name in names for sort in sorts)


def known(sorts: Sorts) -> Sorts:
    """Return the sorts without None."""
    return tuple(sort for sort in sorts if sort.name != "none")
