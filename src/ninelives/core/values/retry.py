"""Classify failures, decide whether a retry can help, and compute how long to wait.

Pure: the clock, the jitter and the number of attempts are passed in. Errors of HTTP libraries and model
clients are recognised by their attributes (`status_code`, `response.headers`) and by the names of their
classes; no library is imported. A failure is permanent unless something indicates that it is temporary.
"""

from __future__ import annotations

import datetime as dt
import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from ninelives.core import errors


class Reason(StrEnum):
    """Why an attempt failed."""

    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    PERMANENT = "permanent"
    POISON = "poison"


PASSING: Final = (Reason.TRANSIENT, Reason.RATE_LIMITED, Reason.TIMEOUT)
MAX_RETRY_AFTER_SECONDS: Final = 3600.0

_POISON: Final = (
    MemoryError,
    RecursionError,
    SyntaxError,
    errors.NotSerializable,
    errors.ReplayError,
    errors.Corrupt,
    errors.SchemaMismatch,
    errors.IllegalTransition,
)
_TIMEOUT_NAMES: Final = frozenset({"Timeout", "TimeoutException", "APITimeoutError", "ServerTimeoutError"})
_TRANSIENT_NAMES: Final = frozenset(
    {"TransportError", "APIConnectionError", "ClientConnectionError", "gaierror", "ProtocolError"}
)
_LOCAL_FAULTS: Final = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
_PASSING_ERRNOS: Final = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENETDOWN}
    | {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETRESET, errno.ENOBUFS, errno.EIO}
)
_STATUS_REASONS: Final = {
    408: Reason.TIMEOUT,
    409: Reason.TRANSIENT,  # model and payment APIs answer 409 while the first request is still running
    425: Reason.TRANSIENT,
    429: Reason.RATE_LIMITED,
    501: Reason.PERMANENT,
    504: Reason.TIMEOUT,
    505: Reason.PERMANENT,
    529: Reason.RATE_LIMITED,
}


def classify(exc: BaseException) -> Reason:
    """Return the reason of a failure, as far as retrying is concerned."""
    # What the user's code says comes before what we can guess from the error.
    if isinstance(exc, errors.Permanent):
        return Reason.PERMANENT
    if isinstance(exc, errors.Transient | errors.NotDone | errors.StoreUnavailable):
        return Reason.TRANSIENT
    if isinstance(exc, _POISON):
        return Reason.POISON
    # Before the class names: a client's generic error may carry a 400, which no retry changes.
    status = status_of(exc)
    if status is not None:
        return _reason_of_status(status, exc)
    cause = _read(exc, "reason") if isinstance(exc, OSError) else None
    if isinstance(cause, OSError) and cause is not exc and not isinstance(_read(cause, "reason"), OSError):
        return classify(cause)  # urllib's URLError: no connection, with the error of the socket inside
    names = {kind.__name__ for kind in type(exc).__mro__}
    if isinstance(exc, TimeoutError) or names & _TIMEOUT_NAMES:
        return Reason.TIMEOUT
    if isinstance(exc, ConnectionError) or names & _TRANSIENT_NAMES:
        return Reason.TRANSIENT
    if isinstance(exc, OSError) and not isinstance(exc, _LOCAL_FAULTS):
        return (
            Reason.TRANSIENT
            if exc.errno in _PASSING_ERRNOS or "ConnectionError" in names
            else Reason.PERMANENT
        )
    return Reason.PERMANENT


def _reason_of_status(status: int, exc: BaseException) -> Reason:
    if status == 503 and _header(exc, "retry-after") is not None:
        return Reason.RATE_LIMITED
    if status in _STATUS_REASONS:
        return _STATUS_REASONS[status]
    return Reason.TRANSIENT if status >= 500 else Reason.PERMANENT


def _read(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a library's property may raise (httpx: RuntimeError on `.request`)
        return None


def status_of(exc: BaseException) -> int | None:
    """Return the HTTP status that an error carries; None if it has none."""
    found = [_read(exc, name) for name in ("status_code", "status", "code")]
    found.append(_read(_read(exc, "response"), "status_code"))
    return next((one for one in found if type(one) is int and 400 <= one <= 599), None)


def _header(exc: BaseException, name: str) -> str | None:
    for holder in (_read(exc, "response"), exc):
        headers = _read(holder, "headers")
        try:
            items = list(headers.items()) if headers is not None else []
        except Exception:  # noqa: BLE001 - headers of an unknown kind are no headers
            items = []
        for key, value in items:
            if str(key).lower() == name:
                return str(value)
    return None


# ----------------------------------------------------------------------------------------- Retry-After


def retry_after_seconds(exc: BaseException, now_seconds: float) -> float | None:
    """Return how long the error asks us to wait (from seconds or an HTTP date); None if it does not."""
    own = _read(exc, "retry_after_seconds")
    if isinstance(own, int | float):
        return _seconds(float(own))
    milliseconds = _number(_header(exc, "retry-after-ms"))
    if milliseconds is not None:
        return _seconds(milliseconds / 1000)
    text = _header(exc, "retry-after")
    plain = _number(text)
    if plain is not None:
        return _seconds(plain)
    moment = _http_date(text or "")
    return None if moment is None else _seconds(moment - now_seconds)


def _seconds(value: float) -> float | None:
    return max(0.0, value) if math.isfinite(value) else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _http_date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except Exception:  # noqa: BLE001 - what the library cannot read is no date
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp()


# ------------------------------------------------------------------------------------------ the policy


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a step is retried.

    `attempts` includes the first. `on` holds reasons and exception classes; other failures are not retried,
    and poison and `Permanent` are never retried. Raises UsageError for bad values.

    Without `retry=`, decisions and `reads_only` actions are retried as by `Retry(attempts=58,
    max_seconds=600)`: after half a second, then less and less often, at last every 5 to 10 minutes, for about
    6 hours in all. A run that pauses for long leaves memory. Other actions are retried as by `Retry()`.
    """

    attempts: int = 3
    backoff: Literal["exponential", "linear", "constant"] = "exponential"
    base_seconds: float = 0.5
    max_seconds: float = 60.0
    on: tuple[Reason | type[BaseException], ...] = PASSING

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= 1_000_000:
            raise errors.UsageError(f"Retry(attempts={self.attempts!r})", remedy="Use an int from 1 up")
        if self.backoff not in ("exponential", "linear", "constant"):
            raise errors.UsageError(
                f"Retry(backoff={self.backoff!r})", remedy='Use "exponential", "linear" or "constant"'
            )
        for name in ("base_seconds", "max_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise errors.UsageError(f"Retry({name}={value!r})", remedy="Use a finite number from 0 up")
        object.__setattr__(self, "on", tuple(_condition(one) for one in self._given()))

    def _given(self) -> Iterator[Any]:
        given: Any = self.on
        yield from (given,) if isinstance(given, str | type) else given


def _condition(one: Any) -> Reason | type[BaseException]:
    if isinstance(one, type) and issubclass(one, BaseException):
        return one
    try:
        reason = Reason(one)
    except ValueError:
        reason = Reason.POISON
    if reason is Reason.POISON:
        known = ", ".join(reason.value for reason in Reason if reason is not Reason.POISON)
        raise errors.UsageError(f"Retry(on={one!r})", remedy=f"Use exception classes, or: {known}")
    return reason


PATIENT: Final = Retry(attempts=58, max_seconds=600.0)
"""The default of steps that change nothing: outlasts an outage of about 6 hours."""


def default_retry(*, changes_nothing: bool) -> Retry:
    """Return the policy of a step that is declared without one.

    A step that acts gets few attempts: each one whose answer was lost may have done the effect again.
    """
    return PATIENT if changes_nothing else Retry()


def reason_for(exc: BaseException, retry: Retry) -> Reason:
    """Classify a failure under a policy: what `retry.on` does not name is permanent."""
    reason = classify(exc)
    if reason is Reason.POISON or isinstance(exc, errors.Permanent):
        return reason
    if isinstance(exc, tuple(one for one in retry.on if isinstance(one, type))):
        return reason if reason in PASSING else Reason.TRANSIENT
    if reason not in retry.on:
        return Reason.PERMANENT
    return Reason.TRANSIENT if reason is Reason.PERMANENT else reason


def delay_seconds(
    retry: Retry, attempt: int, reason: Reason, *, retry_after: float | None = None, jitter: float
) -> float | None:
    """Return the pause after failed attempt number `attempt` (from 1), or None to give up.

    `jitter` in [0, 1) spreads the pause over its upper half. The pause is never shorter than the server's
    `retry_after`, which may exceed `max_seconds`, up to an hour.
    """
    named = [one for one in retry.on if isinstance(one, type)]
    if reason not in PASSING or (reason not in retry.on and not named) or attempt >= retry.attempts:
        return None
    factors = {"exponential": 2.0 ** min(attempt - 1, 64), "linear": float(attempt), "constant": 1.0}
    pause = min(retry.base_seconds * factors[retry.backoff], retry.max_seconds) * (0.5 + jitter / 2)
    if retry_after is None:
        return pause
    # Spread a little beyond what the server asked: a hundred runs would come back at the same moment.
    return max(pause, min(retry_after, MAX_RETRY_AFTER_SECONDS) * (1 + jitter / 10))
