"""The default retries: what changes nothing outlasts an outage of hours, what acts is tried three times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.values.retry import PATIENT, Reason, delay_seconds
from ninelives.engine.spec.registry import make_step
from ninelives.testing import Sandbox

HOUR = timedelta(hours=1)


class Limited(Exception):
    """A client's error with a status and a Retry-After header."""

    status_code = 429
    headers = {"Retry-After": "1800"}  # noqa: RUF012 (as clients have it)


def outage(sandbox: Sandbox, lasts: timedelta, error: Exception, declare: Any) -> tuple[str, int]:
    """Run an agent of one step while the provider is down; return the result and the number of attempts."""
    began, tried = sandbox.clock.now(), [0]

    @declare  # type: ignore[untyped-decorator]
    async def call() -> str:
        tried[0] += 1
        if sandbox.clock.now() - began < lasts:
            raise error
        return "answer"

    @nl.agent
    async def caller() -> str:
        try:
            return str(await call())
        except Exception as failed:
            return f"gave up: {type(failed).__name__}"

    return sandbox.run(caller), tried[0]


@pytest.mark.parametrize("declare", [nl.decision, nl.action(reads_only=True)], ids=["decision", "read"])
@pytest.mark.parametrize(
    "error", [ConnectionError("down"), TimeoutError("slow"), nl.Transient("503")], ids=repr
)
def test_an_outage_of_four_hours_is_outlasted(declare: Any, error: Exception) -> None:
    with Sandbox() as sandbox:
        began = sandbox.clock.now()
        result, tried = outage(sandbox, 4 * HOUR, error, declare)
        assert result == "answer"
        assert tried <= PATIENT.attempts
        # The last pause is at most 10 minutes: the run is back soon after the provider is.
        assert 4 * HOUR <= sandbox.clock.now() - began <= 4 * HOUR + timedelta(minutes=10, seconds=1)


def test_after_about_six_hours_it_gives_up() -> None:
    with Sandbox() as sandbox:
        began = sandbox.clock.now()
        assert outage(sandbox, 100 * HOUR, ConnectionError("down"), nl.decision) == (
            "gave up: ConnectionError",
            PATIENT.attempts,
        )
        assert 4 * HOUR <= sandbox.clock.now() - began <= 8.2 * HOUR


def test_what_the_server_asks_for_is_waited_for() -> None:
    with Sandbox() as sandbox:
        began = sandbox.clock.now()
        assert outage(sandbox, timedelta(minutes=29), Limited("slow down"), nl.decision) == ("answer", 2)
        assert timedelta(minutes=30) <= sandbox.clock.now() - began <= timedelta(minutes=33, seconds=1)


@pytest.mark.parametrize(
    ("declare", "error", "attempts"),
    [
        (nl.action, ConnectionError("down"), 3),
        (nl.action(resumable=False), nl.NotDone("down"), 3),
        (nl.action(key=lambda: "one"), ConnectionError("down"), 3),
        (nl.decision(retry=nl.Retry()), ConnectionError("down"), 3),
        (nl.decision(retry=nl.Retry(attempts=1)), ConnectionError("down"), 1),
        (nl.decision, ValueError("wrong"), 1),
        (nl.decision, nl.Permanent("no"), 1),
    ],
)
def test_all_other_failures_are_final_soon(declare: Any, error: Exception, attempts: int) -> None:
    with Sandbox() as sandbox:
        began = sandbox.clock.now()
        result, tried = outage(sandbox, HOUR, error, declare)
        assert (result, tried) == (f"gave up: {type(error).__name__}", attempts)
        assert sandbox.clock.now() - began < timedelta(seconds=10)


def test_the_pauses_are_what_the_docs_state() -> None:
    longest = [delay_seconds(PATIENT, attempt, Reason.TRANSIENT, jitter=0.999999) for attempt in range(1, 59)]
    assert longest[-1] is None
    pauses = [pause for pause in longest if pause is not None]
    assert pauses[0] == pytest.approx(0.5, rel=0.01)
    assert max(pauses) == pytest.approx(600, rel=0.01)
    middle = sum(
        delay_seconds(PATIENT, attempt, Reason.TRANSIENT, jitter=0.5) or 0 for attempt in range(1, 58)
    )
    assert 5.75 <= middle / 3600 <= 6.25


def test_a_policy_of_another_type_is_refused_at_the_declaration() -> None:
    async def call() -> None: ...

    with pytest.raises(UsageError, match=r"retry=3"):
        make_step(call, name="call", retry=3)
