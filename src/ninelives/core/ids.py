"""Names, ids and idempotency keys: which are accepted, and how keys are made.

Ids are data: always bound or escaped, never made into paths, so `../../etc` or `a:{b}` are fine. All are
normalised to NFC, so that two spellings that look alike are one id. Every key that we make has at most 255
printable ASCII characters, depends only on its parts, and is injective: other parts give another key. Parts
that do not fit are replaced by a 128-bit digest. Equal Decimals are one part: 10, 10.0 and 1E+1 pay the same
bill. Values of two types are two parts, even when they are equal.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from string import Formatter
from types import MemberDescriptorType
from typing import Any, Final
from uuid import UUID

from ninelives.core.errors import BadName, UsageError
from ninelives.core.step_ids import MAX_COUNT, StepId, read_step_id, write_step_id

MAX_CHARACTERS: Final = 255
_PART_CHARACTERS: Final = 60
_DIGITS_SHOWN: Final = 30  # a power of ten beyond this is written as one
_DIGEST_MARK: Final = "~"  # escaping never leaves one, so a shortened part is never mistaken for a whole one
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]")
# Unicode's Default_Ignorable_Code_Point, and two blank symbols: they are invisible.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_PLAIN: Final = re.compile(r"[!-~]{1,255}")  # one form, printable, visible, without spaces
_FIELD: Final = re.compile(r"[^\W\d_]\w*(\.[^\W\d_]\w*)*", re.ASCII)


def check_id(value: object, what: str) -> str:
    """Check an id or name and return its NFC form. Raises BadName; `what` says which one is meant."""
    if type(value) is str and _PLAIN.fullmatch(value):  # the hot path: each commit of a budget names five
        return value
    if not isinstance(value, str):
        raise BadName(f"the {what} is a {type(value).__name__}", remedy="Use a str")
    text = unicodedata.normalize("NFC", value)
    if not text:
        raise BadName(f"the {what} is empty", remedy="Use 1 to 255 printable characters")
    if len(text) > MAX_CHARACTERS:
        raise BadName(
            f"the {what} has {len(text)} characters: {text[:40]!a}...",
            remedy="Use at most 255 characters",
        )
    if not text.isprintable():
        position = next(count for count, character in enumerate(text) if not character.isprintable())
        name = unicodedata.name(text[position], f"U+{ord(text[position]):04X}")
        raise BadName(
            f"the {what} {text!a} has a character that is not printable at position {position}: {name}",
            remedy="Use printable characters only: no control characters, line breaks or lone surrogates",
        )
    if text != text.strip():
        raise BadName(f"the {what} {text!a} begins or ends with white space", remedy="Strip it")
    if found := _INVISIBLE.search(text):
        name = unicodedata.name(found[0], f"U+{ord(found[0]):04X}")
        raise BadName(
            f"the {what} {text!a} has an invisible character at position {found.start()}: {name}",
            remedy="Leave it out: two ids that look alike should be one",
        )
    return text


# ------------------------------------------------------------------------------------------- positions


ID_MARK: Final = "@"
"""The prefix that marks an `id=` given by the user, in place of the branch: no branch begins with it."""


_ASIDE: Final = "/~"


def aside(branch: str, number: int) -> str:
    """Return a branch for calls whose ids other records have taken: no task or name yields this form."""
    return f"{branch}{_ASIDE}{number}"


def beside(branch: str) -> str:
    """Return the branch that `aside` was given; any other branch unchanged."""
    before, mark, number = branch.rpartition(_ASIDE)
    return before if mark and number.isdecimal() else branch


def step_id(branch: str, name: str, n: int) -> str:
    """Write a step's identity as one readable text; `parse_step_id` reads it back."""
    return write_step_id(branch, name, _count(n))


def parse_step_id(text: str) -> StepId:
    """Read what `step_id` wrote. Raises BadName for anything else."""
    found = read_step_id(text)
    if found is None:
        raise BadName(f"{ascii(text)[:80]} is not a step id", remedy="A step id reads branch#name#count")
    return found


def _count(n: int) -> int:
    if type(n) is not int or not 0 <= n <= MAX_COUNT:
        raise UsageError(f"a count must be an int from 0 up, not {n!r}")
    return n


def positional_key(run: str, turn: int, branch: str, step: str, n: int) -> str:
    """Make the key of a step without a business key, from its position in the run."""
    return f"{_key_begins(run, turn, branch, step)}{_count(n)}"


@lru_cache(maxsize=1024)
def _key_begins(run: str, turn: int, branch: str, step: str) -> str:
    # Cached: each call that a policy judges has a key, and only the last number differs from the one before.
    return f"nl:{_part(run)}:{_count(turn)}:{_part(branch)}:{_part(step)}:"


def _part(text: str) -> str:
    escaped = _UNSAFE.sub(_percent, text)
    return _shorten(escaped, _PART_CHARACTERS)


def _shorten(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return text[: most - len(digest) - 1] + _DIGEST_MARK + digest


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def generation_key(key: str, generation: int) -> str:
    """Make the key that the body of an action with a business key gets: a new one after each release."""
    if not generation:
        return key
    suffix = f"{_DIGEST_MARK}{generation}"
    return _shorten(key, MAX_CHARACTERS - len(suffix)) + suffix


# ------------------------------------------------------------------------------------------- templates


def key_template(template: str, parameters: Collection[str]) -> Callable[[Mapping[str, object]], str]:
    """Return what fills a key template ("refund:{order_id}") with bound arguments.

    Values are escaped and, unless they are text, carry their type ("int=42"), so that other values give
    another key. Equal Decimals give one key, however many zeros they end with. Raises UsageError naming the
    available placeholders; so does the result, for a value that cannot be part of a key.
    """
    fields = _fields_of(template, parameters)
    special = {character for literal, _ in fields for character in literal}

    def fill(arguments: Mapping[str, object]) -> str:
        parts = (
            literal + (_escape(_value_of(field, arguments), field, special) if field is not None else "")
            for literal, field in fields
        )
        return _shorten("".join(parts), MAX_CHARACTERS)

    return fill


def _fields_of(template: str, available: Collection[str]) -> list[tuple[str, str | None]]:
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as bad:
        raise UsageError(f"the key template {template!r} cannot be read: {bad}") from None
    fields: list[tuple[str, str | None]] = []
    for literal, field, spec, conversion in parsed:
        if literal and not (literal.isascii() and literal.isprintable()):
            raise UsageError(f"the key template {template!a} has text that is not printable ASCII")
        if _DIGEST_MARK in literal:
            raise UsageError(
                f"the key template {template!r} has a {_DIGEST_MARK!r}, which marks shortened keys",
                remedy='Use another separator, such as ":"',
            )
        if fields and field is not None and not any(not _is_word(character) for character in literal):
            raise UsageError(
                f"the key template {template!r} does not separate {{{fields[-1][1]}}} and {{{field}}}",
                remedy='Put a separator between them, such as ":"',
            )
        if field is not None:
            _check_field(template, field, spec or conversion, available)
        fields.append((literal, field))
    if not any(field for _, field in fields):
        raise UsageError(
            f"the key template {template!r} has no placeholder, so all calls would share one key",
            remedy=_available(available),
        )
    return fields


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "%=~"  # the characters of escaped values


def _check_field(template: str, field: str, extra: str | None, available: Collection[str]) -> None:
    if extra or not _FIELD.fullmatch(field):
        raise UsageError(
            f"the key template {template!r} has a placeholder {{{field}}} that is more than names",
            remedy="Write {parameter} or {parameter.attribute}: no formats, indexes or private names",
        )
    if field.split(".", maxsplit=1)[0] not in available:
        raise UsageError(
            f"the key template {template!r} names an unknown {{{field}}}", remedy=_available(available)
        )


def _available(names: Collection[str]) -> str:
    return "Placeholders available: " + (", ".join(f"{{{name}}}" for name in names) or "none")


def _value_of(field: str, arguments: Mapping[str, object]) -> object:
    first, *attributes = field.split(".")
    value = arguments[first]
    for attribute in attributes:
        value = _data_attribute(value, attribute, field)
    return value


def _data_attribute(value: Any, name: str, field: str) -> object:
    """Read an attribute that is data; properties and methods are refused, because they would run code."""
    if isinstance(value, dict) and name in value:
        return value[name]
    held = getattr(value, "__dict__", {})
    if name in held:
        return held[name]
    kind = type(value)
    slot = isinstance(getattr(kind, name, None), MemberDescriptorType)
    if slot or name in getattr(kind, "__struct_fields__", ()) or name in getattr(kind, "_fields", ()):
        return getattr(value, name)
    raise UsageError(
        f"{{{field}}}: a {kind.__name__} has no data attribute {name!r}",
        remedy="Name a field; properties and methods are not called",
    )


def _escape(value: object, field: str, special: set[str]) -> str:
    kind, text = _text_of(value, field)
    text = unicodedata.normalize("NFC", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{{{field}}} is {ascii(value)[:60]}, which has a lone surrogate") from None
    escaped = _UNSAFE.sub(_percent, text)
    # What separates parts in the template must not occur in a part:
    # "a-b" and "c" would make the key of "a" and "b-c".
    for character in special & {"-", "_", "."}:
        kind, escaped = (part.replace(character, f"%{ord(character):02X}") for part in (kind, escaped))
    return f"{kind}={escaped}" if kind else escaped


def class_name(kind: type) -> str:
    """Return a class's name for an identity: qualified (Order.Status), without its module, which may move."""
    return kind.__qualname__.rpartition("<locals>.")[2]


def member_name(member: enum.Enum) -> str:
    """Return an enum member's name for an identity: another member has another name.

    A combination of flags has the names of its members, if these cover all its bits. No bits, or unknown
    ones, have no name in Python: those are written as their number.
    """
    if not isinstance(member, enum.Flag):
        return member.name
    bits = 0
    for part in (member.name or "").split("|"):
        known = type(member).__members__.get(part)
        bits |= known.value if known is not None else int(part) if part.isdecimal() else 0
    return str(member.name) if member.name and bits == member.value else str(member.value)


def _text_of(value: object, field: str) -> tuple[str, str]:
    if isinstance(value, enum.Enum):
        return _UNSAFE.sub(_percent, class_name(type(value))), member_name(value)
    if type(value) is str:
        return "", value
    if isinstance(value, bool | int | UUID) and type(value) in (bool, int, UUID):
        return type(value).__name__, str(value)
    if type(value) is Decimal and value.is_finite():
        return "Decimal", _plain(value)
    if type(value) is dt.date:
        return "date", value.isoformat()
    raise UsageError(
        f"{{{field}}} is {ascii(value)[:60]}, a {type(value).__name__}: it cannot be part of a key",
        remedy="Use a str, int, bool, UUID, Decimal, date or enum member, or give key= a function",
    )


def _plain(value: Decimal) -> str:
    """Return the one text of all Decimals that equal this one; normalize() would round by the context."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    coefficient = text.rstrip("0")
    if not coefficient:
        return "0"
    power = int(exponent) + len(text) - len(coefficient)
    if -_DIGITS_SHOWN <= power <= _DIGITS_SHOWN:
        return format(Decimal(("-" if sign else "") + f"{coefficient}E{power}"), "f")
    return f"{'-' if sign else ''}{coefficient}E{power}"
