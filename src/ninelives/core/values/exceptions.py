"""Errors to bytes and back, so that a step raises the same error on first execution and on replay.

Contract: built-in exceptions, our own, and the classes in `raises` are rebuilt by matching the recorded name
with that closed set; every other error becomes `StepFailed`, on first execution too (`same_error`). Type and
`str()` come back equal, but for secrets, which are masked in texts, args and attributes. Nothing is imported,
and no class is looked up anywhere else.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from ninelives.core import errors
from ninelives.core.errors import Corrupt, Divergence, NineLivesError, StepFailed, UsageError
from ninelives.core.secret import masked, masked_text
from ninelives.core.values.codec import UNTYPED_CODEC
from ninelives.core.values.retry import Reason, classify

MAX_MESSAGE_CHARACTERS: Final = 16_384

Raises = tuple[type[BaseException], ...]


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is recorded of an error. `home` is the closed set that its class is in."""

    name: str
    message: str
    reason: Reason
    home: Literal["builtin", "ours", "raises", "other"]
    args: str = "[]"
    attributes: str = "{}"


def _exceptions(namespace: Mapping[str, Any]) -> dict[str, type[Exception]]:
    return {
        kind.__name__: kind
        for kind in namespace.values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }


# A StopIteration cannot leave a coroutine, and a group holds other errors: both become StepFailed.
_BUILTIN: Final = {
    name: kind
    for name, kind in _exceptions(vars(builtins)).items()
    if not issubclass(kind, StopIteration | StopAsyncIteration | BaseExceptionGroup)
}
_KEPT_OUTSIDE: Final[Mapping[type, tuple[str, ...]]] = {
    OSError: ("errno", "strerror", "filename", "filename2"),
    ImportError: ("name", "path"),
    NameError: ("name",),
    AttributeError: ("name",),
    UnicodeDecodeError: ("encoding", "object", "start", "end", "reason"),
    UnicodeEncodeError: ("encoding", "object", "start", "end", "reason"),
    UnicodeTranslateError: ("object", "start", "end", "reason"),
}
_OURS: Final = _exceptions(vars(errors))


def _homes(raises: Raises) -> dict[str, Mapping[str, type[BaseException]]]:
    """Return the closed sets of classes by name; the first that has a class is its home."""
    return {"raises": {kind.__name__: kind for kind in raises}, "builtin": _BUILTIN, "ours": _OURS}


def check_raises(raises: object) -> Raises:
    """Check `raises=` at registration. Raises UsageError unless it holds classes of different names."""
    given = raises if isinstance(raises, tuple | list) else (raises,)
    for kind in given:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError(
                f"raises= has {kind!r}, which is no exception class", remedy="List subclasses of Exception"
            )
    if len({kind.__name__ for kind in given}) < len(given):
        raise UsageError(
            "raises= has two classes of the same name", remedy="Rename one: the name identifies the class"
        )
    return tuple(given)


def encode_error(exc: BaseException, *, raises: Raises = ()) -> bytes:
    """Encode an error. Never raises: what cannot be rebuilt equal is recorded as a `StepFailed`."""
    message = _message(exc)
    kind = type(exc)
    home = next((home for home, known in _homes(raises).items() if known.get(kind.__name__) is kind), None)
    plain = Failure(kind.__name__, message, classify(exc), "other")
    if home is not None:
        # First as it is; if its args cannot be stored, with
        # its text alone, which still gives the right class.
        for args in (_args(exc), (message,)):
            failure = _whole(plain, home, args, _attributes(exc))
            # Tried now: on replay it would be too late to find that the class cannot be rebuilt.
            if failure is not None and _comes_back(failure, kind, raises):
                return msgspec.json.encode(failure)
    return msgspec.json.encode(plain)


def decode_error(data: bytes, *, raises: Raises = ()) -> BaseException:
    """Rebuild a recorded error. Raises Corrupt for other bytes, Divergence when its class is gone."""
    return _rebuild(read_failure(data), raises)


def read_failure(data: bytes) -> Failure:
    """Read a recorded error without rebuilding it. Raises Corrupt."""
    try:
        return msgspec.json.decode(data, type=Failure)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as bad:
        raise Corrupt(f"a recorded error cannot be read: {bad}") from None


def same_error(exc: BaseException, raises: Raises = ()) -> BaseException:
    """Return the error that a first execution must raise, so that replay can raise the same."""
    return decode_error(encode_error(exc, raises=raises), raises=raises)


_NO_EXCEPTIONS = frozenset(
    {
        "BaseException",
        "BaseExceptionGroup",
        "CancelledError",
        "GeneratorExit",
        "KeyboardInterrupt",
        "SystemExit",
    }
)


# --------------------------------------------------------------------------------------------- writing


def _message(exc: BaseException) -> str:
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - an error whose __str__ raises is still an error
        text = f"<{type(exc).__name__} whose text could not be read>"
    # Stores refuse lone surrogates and NUL: the record of a failure must never fail itself.
    text = masked_text(text).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else text[:MAX_MESSAGE_CHARACTERS] + "…"


def _args(exc: BaseException) -> tuple[Any, ...]:
    if isinstance(exc, OSError) and type(exc).__name__ in _BUILTIN:
        reduced: Any = exc.__reduce__()  # OSError keeps its file names out of `args`
        return tuple(masked(reduced[1]))
    return tuple(masked(exc.args))


def _attributes(exc: BaseException) -> dict[str, object]:
    held = dict(vars(exc)) if hasattr(exc, "__dict__") else {}
    for name in _members(type(exc)):
        value = getattr(exc, name, None)
        if value is not None:
            held[name] = value
    held = {name: masked(value) for name, value in held.items()}
    return {name: value for name, value in held.items() if _may_set(name) and _plain(value) is not None}


def _members(kind: type[BaseException]) -> set[str]:
    """Return the attributes that a class keeps outside `__dict__`: slots, and those kept by C code."""
    names: set[str] = set()
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            is_private = slot.startswith("__") and not slot.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{slot}" if is_private else slot)
        # What a built-in OSError keeps is in its args.
        if kind.__name__ not in _BUILTIN or base is not OSError:
            names.update(_KEPT_OUTSIDE.get(base, ()))
    return names


def _may_set(name: str) -> bool:
    return name == "__notes__" or not name.startswith("__")


def _plain(value: object) -> str | None:
    try:
        return UNTYPED_CODEC.encode(value).decode()
    except UsageError:
        return None


def _whole(plain: Failure, home: Any, args: tuple[Any, ...], attributes: dict[str, object]) -> Failure | None:
    encoded, held = _plain(list(args)), _plain(attributes)
    if encoded is None or held is None or len(encoded) + len(held) > 4 * MAX_MESSAGE_CHARACTERS:
        return None
    return msgspec.structs.replace(plain, home=home, args=encoded, attributes=held)


def _comes_back(failure: Failure, kind: type[BaseException], raises: Raises) -> bool:
    try:
        rebuilt = _rebuild(failure, raises)
        return type(rebuilt) is kind and str(rebuilt) == failure.message
    except Exception:  # noqa: BLE001 - a user's class that cannot be rebuilt
        return False


# ------------------------------------------------------------------------------------------ rebuilding


def _rebuild(failure: Failure, raises: Raises) -> BaseException:
    if failure.home == "other":
        is_no_exception = failure.name in _NO_EXCEPTIONS
        return StepFailed(
            f"{failure.name}: {failure.message}",
            remedy="It is no Exception, and raises= cannot list it: raise an Exception instead"
            if is_no_exception
            else "List its class in raises= to get it back as itself",
        )
    kind = _homes(raises)[failure.home].get(failure.name)
    if kind is None:
        raise Divergence(
            f"the recorded error {failure.name!a} is no longer in raises=",
            remedy="List it again, or keep a class of that name",
        )
    args, attributes = _load(failure.args), _load(failure.attributes)
    if type(args) is not list or type(attributes) is not dict or not all(map(_may_set, attributes)):
        raise Corrupt(f"the recorded {failure.name} is damaged")
    return _make(kind, failure, args, attributes)


def _load(text: str) -> Any:
    return UNTYPED_CODEC.decode(text.encode())


def _make(
    kind: type[BaseException], failure: Failure, args: list[Any], attributes: dict[str, Any]
) -> BaseException:
    try:
        if failure.home == "builtin":
            made = kind(*args)
        else:
            # Skip __init__: its parameters need not be the args. The recorded attributes are the state.
            made = kind.__new__(kind, *args)
            made.args = tuple(args)
        outside = _members(kind) if attributes else ()
        for name, value in attributes.items():
            if name in outside:
                object.__setattr__(made, name, value)
            else:
                vars(made)[name] = value
    except (TypeError, ValueError, AttributeError) as bad:
        raise Corrupt(f"the recorded {failure.name} cannot be rebuilt: {bad}") from bad
    if (
        isinstance(made, NineLivesError)
        and not {"what", "run", "step", "path", "remedy"} <= vars(made).keys()
    ):
        raise Corrupt(f"the recorded {failure.name} is damaged")
    return made
