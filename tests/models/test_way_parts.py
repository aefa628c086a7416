"""The arithmetic of ways: latencies, budget, breaker of a way, whose fault an error is; and declarations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ninelives as nl
from ninelives.core.governance.breaker import Breaker
from ninelives.core.model_calls.faults import is_of_way
from ninelives.core.model_calls.hedge_budget import HELD_AT_MOST, HedgeBudget
from ninelives.core.model_calls.latency import ENOUGH, LATEST, Latencies
from ninelives.core.model_calls.way_breaker import WayBreaker
from ninelives.core.values.retry import PATIENT
from tests.models.series import HttpError


@given(st.lists(st.floats(0, 1e6), max_size=1_200), st.floats(0.5, 0.999))
def test_a_percentile_is_that_of_the_latest_answers(took: list[float], share: float) -> None:
    known = Latencies()
    for seconds in took:
        known.add(seconds)
    latest = sorted(took[-LATEST:])
    assert len(known) == len(latest)
    expected = latest[min(len(latest) - 1, int(len(latest) * share))] if len(latest) >= ENOUGH else None
    assert known.at(share) == expected


@given(st.lists(st.booleans(), max_size=400), st.sampled_from([0.05, 0.1, 0.33, 1.0]))
def test_a_budget_is_never_negative_and_holds_ten_at_most(wants: list[bool], share: float) -> None:
    budget, sent, in_a_row = HedgeBudget(share), 0, 0
    for at, wanted in enumerate(wants, start=1):
        budget.called()
        while wanted and budget.take():
            sent, in_a_row = sent + 1, in_a_row + 1
            assert sent <= share * at + 1e-9
            assert in_a_row <= HELD_AT_MOST
        in_a_row = 0


def test_a_way_rests_after_failures_within_the_time_and_one_call_tries_it() -> None:
    one = WayBreaker(Breaker(failures=3, within="1m", open="30s"))
    for at in (0, 40, 80):  # three, but not within a minute
        one.failed(at, tries=False)
    assert one.may_ask(80)
    one.failed(90, tries=False)  # this and the two before it are
    assert not one.may_ask(119)
    assert one.may_ask(120)
    assert one.asks()
    assert not one.may_ask(121), "one call tries; the others do not wait for it"
    assert not one.asks()
    one.failed(121, tries=True)
    assert not one.may_ask(150)
    assert one.may_ask(151)
    assert one.asks()
    one.left(tries=True)  # it was cancelled: another one may try
    assert one.asks()
    one.answered(tries=True)
    assert one.may_ask(151)
    assert not one.asks()


def test_slow_answers_count_if_they_are_many_of_the_latest() -> None:
    one = WayBreaker(Breaker(failures=5, slow="8x"))
    for at in range(500):  # a heavy tail: one of twenty-five is slow
        if at % 25:
            one.answered(tries=False)
        else:
            one.was_slow(at, tries=False)
    assert one.may_ask(500)
    for at in range(500, 505):
        one.was_slow(at, tries=False)
    assert not one.may_ask(505)


def _from(error: Exception) -> nl.Permanent:
    made = nl.Permanent("the key is refused")
    made.__cause__ = error
    return made


@pytest.mark.parametrize(
    ("error", "is_ways"),
    [
        *((HttpError(status), True) for status in (401, 403, 404, 408, 429, 500, 503, 529)),
        *((HttpError(status), False) for status in (400, 413, 422)),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (nl.Transient("busy"), True),
        (nl.Permanent("no such customer"), False),
        (_from(HttpError(401)), True),
        (_from(HttpError(400)), False),
        (ValueError("a bug"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_whose_fault_an_error_is(error: BaseException, is_ways: bool) -> None:
    assert is_of_way(error, PATIENT) is is_ways


async def ask(question: str, *, model: str = "a") -> str:
    return question


async def other(question: str, *, model: str = "b", more: int = 1) -> str:
    return question


def plain(question: str, *, model: str = "a") -> str:
    return question


@nl.action(name="parts.refund")  # a name of its own: others look for theirs in the registry
async def refund(question: str, *, model: str = "a") -> str:
    return question


@nl.decision
async def asks(question: str, **any_: str) -> str:
    return question


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: nl.action(hedge=nl.Hedge())(ask), "has hedge=.*reads_only=True"),
    (lambda: nl.action(alternatives=[other])(ask), "has alternatives="),
    (lambda: nl.action(cache=nl.Cache(ttl=1), resumable=False)(ask), "has cache="),
    (
        lambda: nl.action(reads_only=True, hedge=nl.Hedge(), key="k:{question}")(ask),
        "hedge= and key= exclude",
    ),
    (lambda: nl.action(reads_only=True, hedge=nl.Hedge(), approval=True)(ask), "hedge= and approval="),
    (lambda: nl.decision(hedge=nl.Hedge())(plain), "a thread cannot be cancelled"),
    (lambda: nl.decision(hedge=2)(ask), r"Give nl\.Hedge"),  # type: ignore[call-overload]
    (lambda: nl.decision(cache=2)(ask), r"Give nl\.Cache"),  # type: ignore[call-overload]
    (lambda: nl.decision(alternatives=other)(ask), "Give a list"),  # type: ignore[call-overload]
    (lambda: nl.decision(alternatives=[plain])(ask), "'plain' is a plain function, and the step is not"),
    (lambda: nl.decision(alternatives=[refund])(ask), "'parts.refund' is no decision"),
    (lambda: nl.decision(alternatives=[lambda: ""])(plain), "cannot be called as the step is"),
    (lambda: nl.decision(breaker=nl.Breaker(slow="8x"))(ask), "no other way to ask"),
    (lambda: nl.Breaker(slow="8"), "'8x'"),
    (lambda: nl.Breaker(slow="1x"), "above 1"),
    (lambda: nl.Hedge(after="95"), "'p50' to 'p99.9'"),
    (lambda: nl.Hedge(after="p40"), "'p50' to 'p99.9'"),
    (lambda: nl.Hedge(after=0), "seconds above 0"),
    (lambda: nl.Hedge(most=1), "2 to 5"),
    (lambda: nl.Hedge(budget=0), "0.05 is 5 %"),
]


@pytest.mark.parametrize(("declare", "says"), WRONG)
def test_a_wrong_declaration_is_refused_with_a_remedy(declare: Callable[[], Any], says: str) -> None:
    with pytest.raises(nl.UsageError, match=says):
        declare()


def test_ways_have_names_of_their_own() -> None:
    step: Any = nl.decision(alternatives=[other, partial(other, more=2), asks], hedge=nl.Hedge(most=3))(ask)
    assert [way.name for way in step.__ninelives__.model_call.ways] == ["ask", "other", "other 2", "asks"]
    reads: Any = nl.action(reads_only=True, alternatives=[plain])(plain)
    assert reads.__ninelives__.model_call.breaker is None


def test_other_steps_pay_for_nothing_of_it() -> None:
    assert asks.__ninelives__.model_call is None  # type: ignore[attr-defined]
