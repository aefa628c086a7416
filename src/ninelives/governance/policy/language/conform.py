"""What a value must be when a condition reads it.

Python does not enforce annotations: an `int` may be given as the text "5,000". A comparison with it would
simply be false, and a rule that should deny would not apply. So each value that is read is compared with its
sort, and one that does not fit makes the rule unanswerable. So does NaN, which no comparison can decide.
"""

from __future__ import annotations

import datetime as dt
import enum
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from ninelives.governance.policy.language.errors import NotStored, Unanswerable, Unstored
from ninelives.governance.policy.language.sorts import Sort, Sorts, has, label

Conform = Callable[[Any], Any]
_EXACT: Final[Mapping[str, tuple[type, ...]]] = {
    "none": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "decimal": (Decimal, int),
    "text": (str,),
    "list": (list, tuple, set, frozenset),
    "dict": (dict,),
}
_PLAIN: Final = (type(None), bool, int, str)
TEXT_CHARACTERS: Final = 1_000_000
"""A longer text makes a rule unanswerable: searching it would hold up the worker."""


def conformer(sorts: Sorts, what: str) -> Conform:
    """Return a function that returns a value as the condition may use it.

    The function raises Unanswerable if the value has none of these sorts.
    """
    exact = frozenset(kind for sort in sorts for kind in _classes(sort))
    # None of these classes has values that need a second look.
    quick = exact & set(_PLAIN) if not any(sort.values for sort in sorts) else frozenset()
    if has(sorts, "any"):
        return lambda value: _any(value, what)

    def conform(value: Any) -> Any:
        kind = value.__class__
        if kind in quick and (kind is not str or len(value) <= TEXT_CHARACTERS):
            return value
        return _checked(value, sorts, what)

    return conform


def _classes(sort: Sort) -> tuple[type, ...]:
    return _EXACT.get(sort.name, (sort.of,) if isinstance(sort.of, type) else ())


def _checked(value: Any, sorts: Sorts, what: str) -> Any:
    _refuse(value, what)
    kind = type(value)
    for sort in sorts:
        if kind in _classes(sort):
            return _member(value, sort, what)
    for sort in sorts:
        if (found := _near(value, sort)) is not None:
            return _member(found, sort, what)
    raise Unanswerable(f"{what} is {kind.__name__}, not {label(sorts)}")


def _member(value: Any, sort: Sort, what: str) -> Any:
    if sort.values and not any(type(one) is type(value) and one == value for one in sort.values):
        raise Unanswerable(f"{what} is none of the values that its annotation names")
    return value


def _near(value: Any, sort: Sort) -> Any:
    """Return a value of a subclass as its base class, without calling what the subclass overrides."""
    if sort.name == "text" and isinstance(value, str):
        return str.__str__(value) if not isinstance(value, enum.Enum) else str.__str__(value.value)
    if sort.name == "int" and isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    if sort.name == "record" and not typing.is_typeddict(sort.of) and isinstance(value, sort.of):
        return value
    if (sort.name == "dict" or typing.is_typeddict(sort.of)) and isinstance(value, dict):
        return dict.copy(value)
    if sort.name == "list" and isinstance(value, list):
        return list.copy(value)
    if sort.name == "list" and isinstance(value, tuple):
        return tuple.__getitem__(value, slice(None))
    return None


def _refuse(value: Any, what: str) -> None:
    """Refuse what was not stored, what no comparison can decide, and texts that are too long."""
    if isinstance(value, NotStored):
        raise Unstored(f"{what} was not stored: {value.what}")
    if isinstance(value, float) and not float.__eq__(value, value):
        raise Unanswerable(f"{what} is not a number (NaN)")
    if isinstance(value, Decimal) and Decimal.is_nan(value):
        raise Unanswerable(f"{what} is not a number (NaN)")
    if isinstance(value, str | bytes) and len(value) > TEXT_CHARACTERS:
        raise Unanswerable(f"{what} is longer than {TEXT_CHARACTERS:,} characters")


def _any(value: Any, what: str) -> Any:
    _refuse(value, what)
    # What a subclass overrides must not decide: a text that is equal to nothing is still that text.
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool | enum.Enum):
        return int.__int__(value)
    return value


_GROUPS: Final = {
    bool: "bool",
    int: "number",
    float: "number",
    Decimal: "number",
    str: "text",
    bytes: "bytes",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "timedelta",
    type(None): "none",
}


def group_of(value: Any) -> object:
    """Return which other values a value can be compared with; of a class of its own: those of that class."""
    kind = type(value)
    return _GROUPS.get(kind, kind)


def exact_class(sorts: Sorts) -> type | None:
    """Return the class whose values need no second look, if there is one: int or str."""
    (sort, *more) = sorts
    return {"int": int, "text": str}.get(sort.name) if not more and not sort.values else None
