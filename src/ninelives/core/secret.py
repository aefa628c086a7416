"""Secrets: values whose plain text no record, log line, error text, question or export may show.

Invariants: a secret counts in fingerprints and is shown by its *name* alone. Nothing that depends on its
value is ever written, so no guess at a short one can be checked against a record, and a credential may be
rotated while a run sleeps. Where values are written (results, arguments of runs, signals, output), a secret
is refused, unless the store encrypts (`KEPT`). Once `reveal` has handed out the plain text, it is masked in
error texts and in our log lines, wherever it occurs in them.

pydantic's SecretStr and SecretBytes are treated the same; they are known by `get_secret_value`, and pydantic
is not imported here. They have no name. Nothing here is durable: dying here loses nothing.
"""

from __future__ import annotations

import binascii
import hmac
import json
import re
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, get_args, get_origin
from urllib.parse import quote

import msgspec

from ninelives.core.errors import UsageError

MASK: Final = "***"
FEWEST_CHARACTERS: Final = 6
"""Shorter plain texts are not searched for: they occur in ordinary words and numbers."""
MOST_KNOWN: Final = 4_096
KEPT: Final = ContextVar("ninelives_secrets_kept", default=False)
"""Whether what is encoded now goes to a store that encrypts it, so that secrets may be in it."""

_UNCODED: Final = ("", "/", "?/:@!$'()*,;", "!$&'()*+,;=:/?@[]")
"""What programs leave as it is in a URL: browsers' forms, `urllib`, `yarl`, `httpx` and `requests`."""
_PERCENT: Final = re.compile("%[0-9A-F]{2}")

_revealed: dict[str, None] = {}
"""Plain texts that were handed out, as they would stand in a text; the oldest first."""

Plain = TypeVar("Plain", bound=str | bytes)


class Secret(Generic[Plain]):
    """A value that is never shown or recorded. `name` is what people and fingerprints see of it."""

    __slots__ = ("__plain", "__weakref__", "name")

    name: str

    def __init__(self, value: Plain, *, name: str = "") -> None:
        if type(value) not in (str, bytes) or type(name) is not str:
            raise UsageError(
                f"nl.Secret() holds str or bytes, not {type(value).__name__}; its name is a str",
                remedy="Encode the value first, for example as JSON text",
            )
        object.__setattr__(self, "_Secret__plain", value)
        object.__setattr__(self, "name", name)

    def reveal(self) -> Plain:
        """Return the plain value. From now on error texts and our log lines mask it."""
        plain: Plain = self.__plain  # type: ignore[attr-defined]
        note(plain)
        return plain

    def __repr__(self) -> str:
        return f"Secret({shown(self)!r})"

    def __str__(self) -> str:
        return shown(self)

    def __format__(self, spec: str) -> str:
        return format(shown(self), spec)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Secret:
            return NotImplemented
        return self.name == other.name and _same(plain_of(self), plain_of(other))

    def __hash__(self) -> int:
        return hash((Secret, self.name, plain_of(self)))

    def __bool__(self) -> bool:
        return bool(plain_of(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Secret does not change: {name} cannot be set")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: pass its name, and read it from the environment there")


_PLAIN: Final = attrgetter("_Secret__plain")


def _same(left: str | bytes, right: str | bytes) -> bool:
    return type(left) is type(right) and hmac.compare_digest(_bytes(left), _bytes(right))


def _bytes(plain: str | bytes) -> bytes:
    return plain.encode(errors="surrogatepass") if isinstance(plain, str) else plain


def is_secret(value: object) -> bool:
    """Return whether a value is a secret: ours, or pydantic's SecretStr or SecretBytes."""
    return type(value) is Secret or hasattr(type(value), "get_secret_value")


def plain_of(value: Any) -> Any:
    """Return a secret's plain value without counting it as handed out."""
    found = _PLAIN(value) if type(value) is Secret else value.get_secret_value()
    if type(value) is not Secret and isinstance(found, str | bytes):
        note(found)  # its own method hands it out where we do not see it
    return found


def shown(value: object) -> str:
    """Return what people and fingerprints see of a secret."""
    name = value.name if type(value) is Secret else ""
    return f"{MASK} ({name})" if name else MASK


# ------------------------------------------------------------------------------------------- masking


def note(plain: str | bytes) -> None:
    """Mask a plain text from now on, in error texts and log lines."""
    text = plain if isinstance(plain, str) else plain.decode(errors="backslashreplace")
    sound = text.encode(errors="replace").decode()
    coded = [quote(sound, safe=safe) for safe in _UNCODED]
    coded += [one.replace("%20", "+") for one in coded]
    coded += [_PERCENT.sub(lambda found: found[0].lower(), one) for one in coded]
    said = [msgspec.json.encode(sound)[1:-1].decode(), json.dumps(sound)[1:-1]]
    forms = [text, repr(text)[1:-1], ascii(text)[1:-1], *said, *coded]
    if isinstance(plain, str):
        forms.append(repr(sound.encode())[2:-1])
    else:
        forms.append(binascii.b2a_base64(plain, newline=False).decode())
    for form in forms:
        if len(form) >= FEWEST_CHARACTERS and form not in _revealed:
            _revealed[form] = None
    while len(_revealed) > MOST_KNOWN:
        _revealed.pop(next(iter(_revealed)), None)


def masked_text(text: str) -> str:
    """Return a text without the plain texts that were handed out."""
    if _revealed:
        # A copy: another thread may reveal one meanwhile. Longest first: one may be a part of another.
        for form in sorted(_revealed.copy(), key=len, reverse=True):
            if form in text:
                text = text.replace(form, MASK)
    return text


def masked(value: Any, depth: int = 20) -> Any:
    """Return plain data with masks in place of secrets, and of plain texts that were handed out."""
    if is_secret(value):
        return shown(value)
    if type(value) is str:
        return masked_text(value)
    if type(value) is bytes:
        text = value.decode("latin-1")
        said = masked_text(text)
        return value if said == text else said.encode("latin-1")
    if depth > 0:
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(masked(item, depth - 1) for item in value)
        if type(value) is dict:
            return {masked(key, depth - 1): masked(held, depth - 1) for key, held in value.items()}
    return value


def masked_tree(tree: Any) -> Any:
    """Return a stored tree of JSON with masks in place of the secrets in it, for an error text."""
    if type(tree) is dict:
        if tree.get("$") == "secret":
            return MASK
        return {key: masked_tree(held) for key, held in tree.items()}
    return [masked_tree(item) for item in tree] if type(tree) is list else tree


def masked_json(data: bytes) -> bytes:
    """Return stored JSON with masks in place of the secrets in it; itself if there are none."""
    if b'"$":"secret"' not in data:
        return data
    return msgspec.json.encode(masked_tree(msgspec.json.decode(data)))


def plain_tree(tree: Any) -> Any:
    """Return plain data with the plain values of its secrets: what a pydantic model is made from."""
    if is_secret(tree):
        return plain_of(tree)
    if type(tree) is dict:
        return {key: plain_tree(held) for key, held in tree.items()}
    return [plain_tree(item) for item in tree] if type(tree) is list else tree


def with_secrets(tree: Any, python: Any) -> Any:
    """Return a model's JSON tree, in which pydantic has masked its secrets, with the secrets themselves.

    `python` is the same model as Python data. A secret that is not at the same path in both stays masked:
    then the value does not come back equal, and is refused.
    """
    if is_secret(python):
        plain = plain_of(python)
        return python if type(python) is Secret else Secret(plain)
    if type(python) is dict and type(tree) is dict:
        return {key: with_secrets(held, python.get(key)) for key, held in tree.items()}
    if type(python) in (list, tuple) and type(tree) is list:
        return [with_secrets(held, python[at] if at < len(python) else None) for at, held in enumerate(tree)]
    return tree


def holds_secret(value: Any, depth: int = 20) -> bool:
    """Return whether plain data has a secret in it."""
    if is_secret(value):
        return True
    if depth <= 0:
        return False
    held = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list | tuple | set | frozenset) and any(
        holds_secret(item, depth - 1) for item in held
    )


def names_secret(annotation: Any, above: tuple[Any, ...] = ()) -> bool:
    """Return whether values of an annotation may hold secrets, in the fields of pydantic models too."""
    if annotation in above:
        return False
    above = (*above, annotation)
    if annotation is Secret or hasattr(annotation, "get_secret_value"):
        return True
    parts = list(get_args(annotation)) + ([get_origin(annotation)] if get_args(annotation) else [])
    fields: Any = getattr(annotation, "__pydantic_fields__", None)
    parts += [one.annotation for one in fields.values()] if isinstance(fields, dict) else []
    return any(names_secret(part, above) for part in parts)
