"""Failures are classed by what they say, and retried only as the policy and the proof allow."""

import asyncio
import math
import socket
import urllib.error
from email.message import Message
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core import errors
from ninelives.core.errors import UsageError
from ninelives.core.values.retry import (
    MAX_RETRY_AFTER_SECONDS,
    PASSING,
    Reason,
    Retry,
    classify,
    delay_seconds,
    reason_for,
    retry_after_seconds,
)


class Response:
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code, self.headers = status, headers or {}


class HTTPStatusError(Exception):
    """As httpx and requests raise it; reading `request` fails, as httpx's does."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"answered {status}")
        self.response = Response(status, headers)

    @property
    def status(self) -> int:
        raise RuntimeError("not set")


class APIStatusError(Exception):
    """As model clients raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status_code = status


def named(name: str, *bases: str) -> Exception:
    kind: Any = Exception
    for base in (*bases, name):
        kind = type(base, (kind,), {})
    made: Exception = kind("x")
    return made


T, R, O, P, X = Reason.TRANSIENT, Reason.RATE_LIMITED, Reason.TIMEOUT, Reason.PERMANENT, Reason.POISON  # noqa: E741


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (errors.Transient("x"), T),
        (errors.NotDone("x"), T),
        (errors.Permanent("x"), P),
        (errors.StoreUnavailable("x"), T),
        (errors.TimedOut("x"), O),
        (errors.NotSerializable("x"), X),
        (errors.Divergence("x"), X),
        (errors.Corrupt("x"), X),
        (errors.Denied("x"), P),
        (errors.StepFailed("x"), P),
        (errors.KeyConflict("x"), P),
        (MemoryError(), X),
        (RecursionError(), X),
        (TimeoutError(), O),
        (asyncio.TimeoutError(), O),  # noqa: UP041 - the same class, by its other name
        (ConnectionResetError(), T),
        (ConnectionRefusedError(), T),
        (BrokenPipeError(), T),
        (socket.gaierror(-3, "try again"), T),
        (OSError(28, "no space"), T),
        (OSError(113, "no route"), T),
        (OSError(22, "invalid"), P),
        (FileNotFoundError(2, "x"), P),
        (PermissionError(13, "x"), P),
        (ValueError("x"), P),
        (KeyError("x"), P),
        (Exception("x"), P),
        (HTTPStatusError(429), R),
        (HTTPStatusError(503), T),
        (HTTPStatusError(503, {"Retry-After": "3"}), R),
        (HTTPStatusError(504), O),
        (HTTPStatusError(501), P),
        (HTTPStatusError(404), P),
        (APIStatusError(529), R),
        (APIStatusError(500), T),
        (APIStatusError(408), O),
        (APIStatusError(409), T),
        (APIStatusError(401), P),
        (APIStatusError(200), P),
        (urllib.error.HTTPError("http://x", 503, "x", Message(), None), T),
        (named("ReadTimeout", "TransportError", "TimeoutException"), O),
        (named("ConnectError", "TransportError"), T),
        (named("APITimeoutError", "APIConnectionError"), O),
        (named("APIConnectionError"), T),
    ],
    ids=lambda one: f"{type(one).__name__}-{one}",
)
def test_failure_is_classed(exc: Any, reason: Reason) -> None:
    assert classify(exc) is reason


NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("exc", "seconds"),
    [
        (errors.Transient("x", retry_after_seconds=2.5), 2.5),
        (errors.Transient("x"), None),
        (HTTPStatusError(429, {"retry-after": "7"}), 7.0),
        (HTTPStatusError(429, {"Retry-After": "0.5"}), 0.5),
        (HTTPStatusError(429, {"retry-after-ms": "250", "retry-after": "9"}), 0.25),
        (HTTPStatusError(429, {"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT"}), 60.0),
        (HTTPStatusError(429, {"retry-after": "Sun, 06 Nov 1994 08:00:00 GMT"}), 0.0),
        (HTTPStatusError(429, {"retry-after": "Sun, 99 Nov 1994 08:00:00 GMT"}), None),
        (HTTPStatusError(429, {"retry-after": "Sunday, 06-Nov-94 08:50:37 GMT"}), 60.0),  # RFC 850
        (
            HTTPStatusError(429, {"retry-after": "Sun Nov  6 08:50:37 1994"}),
            60.0,
        ),  # asctime, which is GMT too
        (HTTPStatusError(429, {"retry-after": "-5"}), 0.0),
        (HTTPStatusError(429, {"retry-after": "nan"}), None),
        (HTTPStatusError(429, {"retry-after": "inf"}), None),
        (HTTPStatusError(429, {"retry-after": "soon"}), None),
        (HTTPStatusError(429), None),
        (ValueError("x"), None),
    ],
)
def test_retry_after_is_read(exc: Exception, seconds: float | None) -> None:
    assert retry_after_seconds(exc, NOW) == seconds


def test_headers_of_an_unknown_kind_are_no_headers() -> None:
    exc = HTTPStatusError(429)
    exc.response.headers = 5  # type: ignore[assignment]
    assert retry_after_seconds(exc, NOW) is None


# -------------------------------------------------------------------------------------------- the policy


@pytest.mark.parametrize(
    "bad",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 2.0},
        {"backoff": "random"},
        {"base_seconds": -1},
        {"base_seconds": math.nan},
        {"max_seconds": math.inf},
        {"max_seconds": "60"},
        {"on": ("sometimes",)},
        {"on": (Reason.POISON,)},
        {"on": (int,)},
    ],
    ids=str,
)
def test_bad_policy_is_refused_at_construction(bad: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Retry(**bad)
    assert next(iter(bad)) in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [("exponential", [1, 2, 4, 8, 10]), ("linear", [1, 2, 3, 4, 5]), ("constant", [1, 1, 1, 1, 1])],
)
def test_pauses_follow_the_backoff_up_to_the_limit(backoff: Any, pauses: list[float]) -> None:
    retry = Retry(attempts=9, backoff=backoff, base_seconds=1, max_seconds=10)
    almost_one = 1 - 2**-53
    assert [delay_seconds(retry, n, T, jitter=almost_one) for n in range(1, 6)] == pytest.approx(pauses)
    assert [delay_seconds(retry, n, T, jitter=0) for n in range(1, 6)] == pytest.approx(
        [p / 2 for p in pauses]
    )


def test_last_attempt_is_not_followed_by_another() -> None:
    assert delay_seconds(Retry(attempts=3), 2, T, jitter=0) is not None
    assert delay_seconds(Retry(attempts=3), 3, T, jitter=0) is None
    assert delay_seconds(Retry(attempts=1), 1, T, jitter=0) is None


@pytest.mark.parametrize("reason", [P, X])
def test_what_does_not_pass_is_not_retried(reason: Reason) -> None:
    assert delay_seconds(Retry(), 1, reason, jitter=0) is None


def test_server_is_never_undercut_but_cannot_hold_us_for_ever() -> None:
    assert delay_seconds(Retry(), 1, R, retry_after=90, jitter=0) == 90
    assert delay_seconds(Retry(), 1, R, retry_after=90, jitter=0.5) == pytest.approx(94.5)
    assert delay_seconds(Retry(), 1, R, retry_after=0, jitter=0) == 0.25
    assert delay_seconds(Retry(), 1, R, retry_after=1e9, jitter=0) == MAX_RETRY_AFTER_SECONDS


@given(
    st.integers(1, 1_000_000),
    st.sampled_from(["exponential", "linear", "constant"]),
    st.floats(0, 1, exclude_max=True),
)
def test_pause_is_always_within_its_limits(attempt: int, backoff: Any, jitter: float) -> None:
    pause = delay_seconds(Retry(attempts=1_000_000, backoff=backoff), attempt, T, jitter=jitter)
    assert pause is None or 0 < pause <= 60


def test_policy_may_name_reasons_and_classes() -> None:
    only_limits = Retry(on=("rate_limited",))  # type: ignore[arg-type]
    assert only_limits.on == (R,)
    assert reason_for(HTTPStatusError(429), only_limits) is R
    assert reason_for(TimeoutError(), only_limits) is P
    assert delay_seconds(only_limits, 1, O, jitter=0) is None

    only_keys = Retry(on=KeyError)  # type: ignore[arg-type]
    assert reason_for(KeyError("x"), only_keys) is T
    assert reason_for(TimeoutError(), only_keys) is P
    assert delay_seconds(only_keys, 1, reason_for(KeyError("x"), only_keys), jitter=0) is not None

    everything = Retry(on=(Exception,))
    assert reason_for(ValueError(), everything) is T
    assert reason_for(HTTPStatusError(429), everything) is R
    assert reason_for(errors.Permanent(), everything) is P
    assert reason_for(MemoryError(), everything) is X
    assert reason_for(ValueError(), Retry(on=(P,))) is T
    assert [reason_for(exc, Retry()) for exc in (TimeoutError(), ValueError())] == [O, P]


def test_default_policy_retries_what_passes() -> None:
    assert Retry().on == PASSING
    assert (Retry().attempts, Retry().base_seconds, Retry().max_seconds) == (3, 0.5, 60)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (ConnectionRefusedError(111, "refused"), Reason.TRANSIENT),
        (TimeoutError("timed out"), Reason.TIMEOUT),
        (FileNotFoundError(2, "no such file"), Reason.PERMANENT),
    ],
)
def test_an_error_of_urllib_is_what_the_socket_raised(inner: OSError, expected: Reason) -> None:
    assert classify(urllib.error.URLError(inner)) is expected


def test_an_error_of_urllib_that_refers_to_itself_is_judged_by_itself() -> None:
    error = urllib.error.URLError("no host given")
    error.reason = error
    assert classify(error) is Reason.PERMANENT
