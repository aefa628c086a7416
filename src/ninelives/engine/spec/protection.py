"""How a keyed or non-resumable action is protected: its options, checked when it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.ids import check_id, key_template
from ninelives.core.secret import MASK
from ninelives.core.values.fingerprint import Taker, taker
from ninelives.engine.spec.callbacks import call_plain, refuse_async
from ninelives.engine.spec.options import StepOptions

LIMIT_SECONDS: Final = 60.0
"""The time limit of a non-resumable action that declares no `timeout`."""

IN_DOUBT: Final = ("escalate", "raise")

KeyMaker = Callable[[tuple[Any, ...], Mapping[str, Any]], str]


class Protection(Struct, frozen=True, eq=False):
    """How an action is protected.

    `identity` fingerprints the arguments that must be equal under one key; None: all that count anyway.
    """

    resumable: bool
    key: KeyMaker | None
    identity: Taker | None
    window_ms: int | None
    verify: Callable[..., Any] | None
    settle_after_ms: int
    raises_doubt: bool
    limit_ms: int


def make_protection(
    signature: inspect.Signature, options: StepOptions, *, name: str, timeout: float | None
) -> Protection | None:
    """Return how an action is protected; None for a resumable one without key, which is simply repeated.

    Raises UsageError for options that contradict each other or have invalid values.
    """
    if not options.resumable:
        _refuse(options, ("transaction",), name, "is safe to repeat: resumable=False adds nothing")
    if options.in_doubt not in IN_DOUBT:
        raise UsageError(
            f"{name}: in_doubt={options.in_doubt!r}", remedy=f"It is one of {', '.join(IN_DOUBT)}"
        )
    if options.resumable:
        _refuse(options, ("verify", "settle_after", "in_doubt"), name, "is for actions with resumable=False")
    if options.key is None:
        _refuse(options, ("key_window", "identity"), name, "is for actions with key=")
        if options.resumable:
            return None
    if options.verify is not None and not callable(options.verify):
        raise UsageError(f"{name}: verify={options.verify!r}", remedy="Give a function")
    return Protection(
        resumable=bool(options.resumable),
        key=key_maker(options.key, signature),
        identity=_identity(signature, options, name),
        window_ms=_ms(options.key_window, "key_window", name),
        verify=options.verify,
        settle_after_ms=_ms(options.settle_after, "settle_after", name) or 0,
        raises_doubt=options.in_doubt == "raise",
        limit_ms=int((timeout if timeout is not None else LIMIT_SECONDS) * 1000),
    )


def _refuse(options: StepOptions, names: Sequence[str], action: str, why: str) -> None:
    for name in names:
        if options.sets(name):
            raise UsageError(
                f"{action}: {name}= {why}", remedy=f"Leave out {name}=, or declare what it needs"
            )


def key_maker(key: object, signature: inspect.Signature, option: str = "key") -> KeyMaker | None:
    """Return the function that makes a call's key, or its external id; None where none is declared.

    Raises UsageError when it is neither a template over the parameters nor a plain function.
    """
    if key is None:
        return None
    if isinstance(key, str):
        fill_template = key_template(key, signature.parameters)

        def fill(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
            bound = signature.bind(*args, **kwargs)
            # A key must not change when a caller spells out a default.
            bound.apply_defaults()
            return _without_secret(check_id(fill_template(bound.arguments), option), option)

        return fill
    if not callable(key):
        raise UsageError(f"{option}={key!r}", remedy='Give a template ("refund:{order_id}") or a function')
    refuse_async(f"{option}=", key)
    made = key
    return lambda args, kwargs: _without_secret(
        check_id(call_plain(f"{option}=", made, *args, **kwargs), option), option
    )


def _without_secret(made: str, option: str) -> str:
    """Refuse a key with a masked secret in it: all secrets would have the same key. Raises UsageError."""
    if MASK in made:
        raise UsageError(
            f"{option}= gives {made!r}: a secret cannot be a part of it, nor can {MASK!r}",
            remedy="Use what names the secret, such as the id of the account",
        )
    return made


def _identity(signature: inspect.Signature, options: StepOptions, name: str) -> Taker | None:
    identity = options.identity
    if identity is None:
        return None
    named = (identity,) if isinstance(identity, str) else identity
    if not isinstance(named, tuple | list) or not named:
        raise UsageError(f"{name}: identity={identity!r}", remedy="Name the arguments that count")
    unknown = [one for one in named if one not in signature.parameters]
    if unknown:
        known = ", ".join(signature.parameters) or "none"
        raise UsageError(
            f"{name}: identity= names {unknown[0]!r}, which is no parameter", remedy=f"Parameters: {known}"
        )
    return taker(signature, ignore=tuple(one for one in signature.parameters if one not in named))


def _ms(value: object, option: str, name: str) -> int | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        raise UsageError(f"{name}: {option}={value!r}", remedy="Give seconds, 0 or more, or a timedelta")
    return int(seconds * 1000)
