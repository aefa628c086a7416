"""What a condition can call. There are no regular expressions: nothing here takes more than linear time."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from ninelives.governance.policy.language import globs
from ninelives.governance.policy.language.errors import Unanswerable, Unsound
from ninelives.governance.policy.language.names import Run, Scope, Typed
from ninelives.governance.policy.language.sorts import (
    BOOL,
    COUNT,
    DATE,
    DURATION,
    MOMENT,
    NUMBERS,
    TEXT,
    UUID_,
    Sort,
    has,
    known,
    label,
)

_FOLDED_CHARACTERS: Final = 100_000


def folded(text: str) -> str:
    """Return a text without differences of case, width, and space around or inside it."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class _OfText(Struct, frozen=True):
    """A function of texts: its result, and how many texts it takes beside the first."""

    sort: Sort
    call: Callable[..., Any]
    more: int = 0


_OF_TEXT: Final[Mapping[str, _OfText]] = {
    "lower": _OfText(TEXT, str.lower),
    "upper": _OfText(TEXT, str.upper),
    "strip": _OfText(TEXT, str.strip),
    "folded": _OfText(TEXT, folded),
    "startswith": _OfText(BOOL, str.startswith, 1),
    "endswith": _OfText(BOOL, str.endswith, 1),
    "contains": _OfText(BOOL, lambda text, part: part in text, 1),
    "glob": _OfText(BOOL, globs.fits, 1),
}
METHODS: Final = frozenset(_OF_TEXT)
_DURATIONS: Final = ("days", "hours", "minutes", "seconds")
_WRITTEN: Final = ("datetime", "date", "uuid")
FUNCTIONS: Final = (*_OF_TEXT, "len", "abs", "tainted", "spent", *_WRITTEN, *_DURATIONS, "any", "all")


def call(scope: Scope, name: str, given: list[Typed]) -> Typed:
    """Return what a call of a function means. Raises Unsound."""
    text = f"{name}({', '.join(one.text for one in given)})"
    if name in _OF_TEXT:
        return _of_text(_OF_TEXT[name], name, given, text)
    if name == "tainted":
        return _tainted(scope, given, text)
    _count(name, given, 1)
    (one,) = given
    if name == "len":
        if not has(one.sorts, "list", "dict", "text") or len(known(one.sorts)) != 1:
            raise Unsound(f"len() of {label(one.sorts)}", "It takes a text, a list or a dict")
        return Typed(text, (COUNT,), _applied(len, one.run))
    if name == "abs":
        if not all(sort.name in NUMBERS for sort in one.sorts):
            raise Unsound(f"abs() of {label(one.sorts)}", "It takes a number")
        plain = tuple(Sort(sort.name, sort.of) for sort in one.sorts)
        return Typed(text, plain, _applied(abs, one.run))
    return _written(scope, name, one, text)


def _applied(function: Callable[[Any], Any], run: Run) -> Run:
    return lambda call: function(run(call))


def _written(scope: Scope, name: str, one: Typed, text: str) -> Typed:
    """Return what functions of a constant mean."""
    value = one.constant
    if name == "spent":
        return Typed(text, (Sort("float", float, low=0),), scope.spent_of(_text(name, value)))
    if name in _DURATIONS:
        if type(value) not in (int, float) or abs(value) > 10**9:
            raise Unsound(f"{name}() takes a number that is written in the rule", f"Write {name}(2)")
        span = dt.timedelta(**{name: value})
        return Typed(text, (DURATION,), lambda _: span, constant=span)
    try:
        made: Any
        if name == "uuid":
            made, sort = UUID(_text(name, value)), UUID_
        elif name == "date":
            made, sort = dt.date.fromisoformat(_text(name, value)), DATE
        else:
            made, sort = dt.datetime.fromisoformat(_text(name, value)), MOMENT
            if made.utcoffset() is None:
                made = made.replace(tzinfo=scope.zone)
    except ValueError as error:
        raise Unsound(
            f"{name}({value!r}): {error}", 'Write it as in datetime("2026-01-31T09:00:00Z")'
        ) from None
    return Typed(text, (sort,), lambda _: made, constant=made)


def _text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise Unsound(f"{name}() takes a text that is written in the rule", f'Write {name}("...")')
    return value


def _of_text(function: _OfText, name: str, given: list[Typed], text: str) -> Typed:
    _count(name, given, 1 + function.more)
    for one in given:
        if not (len(known(one.sorts)) == 1 and has(one.sorts, "text", "any")) and not _are_texts(one):
            raise Unsound(f"{name}() of {label(one.sorts)}", "It takes a text")
    if name in ("lower", "upper", "folded"):
        run = given[0].run
        return Typed(text, (TEXT,), lambda call: _bounded(function.call, _is_text(run(call), name)))
    runs = [one.run for one in given]
    sort = function.sort
    if len(runs) == 1:
        first = runs[0]
        return Typed(text, (sort,), lambda call: function.call(_is_text(first(call), name)))
    first, second = runs
    if given[1].is_constant and type(given[1].constant) is tuple and name == "glob":
        raise Unsound("glob() takes one pattern", "Write one glob(...) for each, joined by `or`")
    if given[1].constant == "":
        raise Unsound(f"{text}: every text has the empty text in it", "Write the text to search for")
    return Typed(
        text,
        (sort,),
        lambda call: function.call(_is_text(first(call), name), _is_text(second(call), name)),
    )


def _are_texts(one: Typed) -> bool:
    return one.is_constant and type(one.constant) is tuple and all(type(each) is str for each in one.constant)


def _is_text(value: Any, name: str) -> Any:
    if type(value) is not str and type(value) is not tuple:
        raise Unanswerable(f"{name}() of {type(value).__name__}")
    return value


def _bounded(function: Callable[[str], str], text: str) -> str:
    if len(text) > _FOLDED_CHARACTERS:
        raise Unanswerable(f"a text of more than {_FOLDED_CHARACTERS:,} characters")
    return function(text)


def _tainted(scope: Scope, given: list[Typed], text: str) -> Typed:
    taint = scope.fact("taint").run
    if not given:
        return Typed(text, (BOOL,), lambda call: bool(taint(call)))
    _count("tainted", given, 1)
    source = _text("tainted", given[0].constant)
    return Typed(text, (BOOL,), lambda call: source in taint(call))


def _count(name: str, given: list[Typed], count: int) -> None:
    if len(given) != count:
        takes = "one value" if count == 1 else f"{count} values"
        raise Unsound(f"{name}() takes {takes}, not {len(given)}", f"Write {name}(...) with {takes}")
