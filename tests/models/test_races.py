"""Second requests, under any series of latencies, failures and cancellations, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ninelives as nl
from ninelives.core.model_calls.hedge_budget import HedgeBudget
from ninelives.engine.spec.model_calls import ModelCall
from ninelives.models.race import LOSER_SECONDS, Race
from ninelives.models.ways import ERRORS_KEPT, Ways
from tests.models.series import (
    RENEWAL_SECONDS,
    Call,
    HttpError,
    Outcome,
    Provider,
    Reply,
    declared,
    in_virtual_time,
    play,
)

REPLIES = st.builds(
    Reply,
    seconds=st.sampled_from([0.0, 0.01, 0.5, 1.0, 1.5, 3.0, 9.0, 200.0]),
    end=st.sampled_from(["answer"] * 6 + ["way", "request"]),
    lingers=st.sampled_from([0.0] * 6 + [0.2, 0.9]),
)
CALLS = st.builds(
    Call,
    replies=st.lists(REPLIES, min_size=1, max_size=4).map(tuple),
    after=st.sampled_from([0.0, 0.0, 0.01, 1.0, 20.0]),
    gives_up=st.sampled_from([None, None, None, 0.5, 2.0, 10.0]),
)
HEDGES = st.builds(
    nl.Hedge,
    after=st.sampled_from(["p95", "p50", 0.3, 2.0]),
    most=st.integers(2, 4),
    budget=st.sampled_from([0.05, 0.1, 1.0]),
)
WARM = (*(Call((Reply(1.0),), after=5.0) for _ in range(50)), Call((Reply(0.9),), after=5.0))


def judge(
    series: tuple[Call, ...], hedge: nl.Hedge, others: int, breaker: nl.Breaker | None
) -> tuple[Provider, list[Outcome]]:
    """Play a series, and check what holds in each."""
    provider = Provider(series)
    step, functions = declared(provider, others, hedge=hedge, **({"breaker": breaker} if breaker else {}))
    outcomes = in_virtual_time(lambda: play(provider, series, step, functions))
    for number, (call, outcome) in enumerate(zip(series, outcomes, strict=True)):
        assert outcome.left == 0, "a request was left running behind the answer"
        answered = outcome.frame.answered
        # A request that is cancelled in the moment in which it is sent does not reach the provider.
        assert answered.ways - answered.lost <= provider.sent[number] <= answered.ways
        if outcome.value is not None:
            assert outcome.value == f"{number} {answered.by}"
        elif isinstance(outcome.error, TimeoutError):
            assert call.gives_up is not None
            assert call.gives_up <= outcome.seconds <= call.gives_up + LOSER_SECONDS + 0.01
        else:
            assert isinstance(outcome.error, HttpError)
            assert len(answered.failed) == min(provider.sent[number], ERRORS_KEPT)
            assert answered.lost == 0, "an attempt failed while a request was under way"
        first = call.replies[0]
        if first.end == "answer" and call.gives_up is None:
            # Hedging never makes a call slower, but for the time in which a loser ends.
            assert outcome.value is not None
            assert outcome.seconds <= first.seconds + LOSER_SECONDS + 0.01
        assert provider.sent[number] <= others + hedge.most, "ever more requests"
    assert provider.most <= hedge.most
    for hedges, begun in provider.shares:
        assert hedges <= hedge.budget * begun + 1e-9, "more second requests than the budget has"
    return provider, outcomes


@settings(deadline=None, max_examples=80)
@given(st.lists(CALLS, min_size=1, max_size=30), HEDGES, st.integers(0, 2), st.booleans(), st.booleans())
def test_what_holds_in_any_series(
    calls: list[Call], hedge: nl.Hedge, others: int, is_warm: bool, breaks: bool
) -> None:
    breaker = nl.Breaker(failures=2, slow="4x") if breaks and others else None
    judge((*(WARM if is_warm else ()), *calls), hedge, others, breaker)


USUAL, STALLED = Call((Reply(0.9),), after=5.0), Call((Reply(99.0), Reply(0.5)), after=5.0)


def test_a_second_request_is_sent_after_the_usual_time() -> None:
    provider, outcomes = judge((*WARM, *[*[USUAL] * 24, STALLED] * 4), nl.Hedge(), 1, None)
    hedged = [one for one in outcomes if one.frame.answered.hedged_ms is not None]
    assert len(hedged) == provider.hedges == 4
    for one in hedged:  # p95 of a second, then the other's half a second
        answered = one.frame.answered
        assert (answered.by, answered.hedged_ms, answered.lost) == ("second", 1000, 1)
        assert one.seconds == pytest.approx(1.5, abs=0.01)


def test_answers_that_were_cancelled_count_in_the_percentile() -> None:
    # A fifth of the answers stalls: after p95 is then later and later. Without the losers it would stay.
    _, outcomes = judge((*WARM, *[*[USUAL] * 4, STALLED] * 40), nl.Hedge(budget=1.0), 1, None)
    hedged = [found for one in outcomes if (found := one.frame.answered.hedged_ms) is not None]
    assert hedged[0] == 1000
    assert hedged[-1] >= 2000


def test_when_all_answers_are_slow_the_budget_runs_out_and_stays_within_its_share() -> None:
    provider, _ = judge((*WARM, *[STALLED] * 100), nl.Hedge(after=1.0), 1, None)
    assert provider.hedges == 7  # of 151 calls


@pytest.mark.parametrize("bug", ["budget ignored", "loser not awaited", "most ignored"])
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_wait(_: Race) -> None:
        """Leave the losers alone."""

    if bug == "budget ignored":
        monkeypatch.setattr(HedgeBudget, "take", lambda _: True)
    elif bug == "loser not awaited":
        monkeypatch.setattr(Race, "_ended", no_wait)
    else:
        monkeypatch.setattr(ModelCall, "most", property(lambda _: 3))
    one = Call((Reply(9.0, lingers=0.5), Reply(8.0, lingers=0.5)), after=5.0)
    lingering = (*WARM, *[one] * 60)
    with pytest.raises(AssertionError, match=r"budget|left running|most|assert"):
        judge(lingering, nl.Hedge(most=2, budget=1.0 if bug == "most ignored" else 0.05), 1, None)


def test_before_fifty_answers_nothing_is_hedged_and_seconds_work_at_once() -> None:
    slow = tuple(Call((Reply(100.0), Reply(0.1)), after=3.0) for _ in range(49))
    assert judge(slow, nl.Hedge(budget=1.0), 0, None)[0].hedges == 0
    provider, outcomes = judge(slow, nl.Hedge(after=2, budget=1.0), 0, None)
    assert provider.hedges == 49
    assert {one.value for one in outcomes} == {f"{number} first" for number in range(49)}


def test_a_fault_of_the_way_starts_the_next_at_once_and_one_of_the_request_does_not() -> None:
    failing = (
        Call((Reply(0.5, "way"), Reply(0.1))),
        Call((Reply(0.5, "request"), Reply(0.1))),
        Call((Reply(0.5, "way"), Reply(0.5, "way"))),
        Call((Reply(0.5, "way"), Reply(0.5, "request"))),
    )
    _, (next_way, refused, both, mixed) = judge(failing, nl.Hedge(after=5), 1, None)
    assert next_way.value == "0 second"
    assert next_way.seconds == pytest.approx(0.6, abs=0.01)
    assert next_way.frame.answered.failed == ("first: HttpError: HTTP 503",)
    assert refused.seconds == pytest.approx(0.5, abs=0.01)
    assert refused.error.status_code == 400  # type: ignore[union-attr]
    assert both.frame.answered.failed == ("first: HttpError: HTTP 503", "second: HttpError: HTTP 503")
    assert "second: HttpError: HTTP 503" in "".join(both.error.__notes__)  # type: ignore[union-attr]
    assert mixed.error.status_code == 400  # type: ignore[union-attr]  # no retry would help


def test_a_failure_waits_for_the_request_that_is_under_way() -> None:
    series = (Call((Reply(3.0, "way"), Reply(4.0), Reply(0.1))),)
    provider, (outcome,) = judge(series, nl.Hedge(after=1, budget=1.0), 2, None)
    assert (outcome.value, provider.sent[0]) == ("0 second", 2)
    assert outcome.seconds == pytest.approx(5.0, abs=0.01)


def test_a_loser_that_does_not_end_is_logged_and_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    series = (Call((Reply(50.0, lingers=30.0), Reply(0.5))),)
    provider = Provider(series)
    step, functions = declared(provider, 0, hedge=nl.Hedge(after=1, budget=1.0))
    with caplog.at_level(logging.WARNING):
        (outcome,) = in_virtual_time(lambda: play(provider, series, step, functions))
    assert outcome.left == 1
    assert outcome.seconds == pytest.approx(1.5 + LOSER_SECONDS, abs=0.01)
    assert "1 cancelled requests have not ended" in caplog.text


def test_a_brown_out_makes_the_next_way_the_first_until_one_call_has_tried_it() -> None:
    calm = tuple(Call((Reply(0.1),), after=0.05) for _ in range(100))
    # Ten calls a second, all of them ten times as slow as usual: the tenth finds another way.
    sick = tuple(Call((Reply(1.0),), after=0.1) for _ in range(100))
    provider = Provider((*calm, *sick))
    breaker = nl.Breaker(failures=5, open="4s", slow="8x")
    step, functions = declared(provider, 1, breaker=breaker)
    outcomes = in_virtual_time(lambda: play(provider, (*calm, *sick), step, functions))
    by = [one.frame.answered.by for one in outcomes[100:]]
    switched = by.index("second")
    assert switched * 0.1 <= 2.0, "it took more than two seconds to switch"
    rest = by[switched:]
    assert rest.count("first") == 1, "a rest of four seconds ends with one call that tries"


def test_a_way_that_fails_rests_and_all_resting_ways_are_asked_all_the_same() -> None:
    series = tuple(Call((Reply(0.01),), after=0.1) for _ in range(20))
    provider = Provider(series)
    step, functions = declared(provider, 1, breaker=nl.Breaker(failures=3, open="30s"))

    async def main() -> list[Outcome]:
        provider.down = {"first"}
        ways = Ways()
        outcomes = await play(provider, series[:10], step, functions, ways)
        provider.sent.clear()
        provider.down = {"first", "second"}
        return outcomes + await play(provider, series[10:], step, functions, ways)

    outcomes = in_virtual_time(main)
    assert [one.frame.answered.ways for one in outcomes[:10]] == [2] * 3 + [1] * 7
    assert {one.frame.answered.by for one in outcomes[:10]} == {"second"}
    assert all(isinstance(one.error, HttpError) for one in outcomes[10:])
    assert [one.frame.answered.ways for one in outcomes[10:]] == [1] * 3 + [2] * 7


def test_a_request_that_was_cancelled_while_it_tried_its_way_lets_another_one_try() -> None:
    stays = Call((Reply(0.01),), after=5.0)
    series = (stays, Call((Reply(50.0),), after=5.0, gives_up=1.0), stays)
    provider = Provider(series)
    step, functions = declared(provider, 1, breaker=nl.Breaker(failures=1, open="1s"))

    async def main() -> list[Outcome]:
        provider.down, ways = {"first"}, Ways()
        before = await play(provider, series[:1], step, functions, ways)
        provider.down = set()
        return before + await play(provider, series[1:], step, functions, ways, first=1)

    failed, gave_up, answered = in_virtual_time(main)
    assert failed.frame.answered.by == "second"
    assert isinstance(gave_up.error, TimeoutError)
    assert answered.frame.answered.by == "first"


def test_requests_that_fail_slowly_are_not_followed_by_ever_more_of_them() -> None:
    quick, fails = Call((Reply(0.01),), after=1.0), Call((Reply(0.0, "way"), Reply(9.0, "way")), after=1.0)
    provider, outcomes = judge((*[quick] * 10, fails), nl.Hedge(after=0.25, budget=1.0), 1, None)
    assert provider.sent[10] == 3  # both ways, and one second request
    assert outcomes[-1].value is None


def test_no_request_begins_after_the_end_of_the_lease() -> None:
    series = (Call((Reply(50.0), Reply(0.1))),)
    provider = Provider(series)
    step, functions = declared(provider, 1, hedge=nl.Hedge(after=1, budget=1.0))

    async def main() -> list[Outcome]:
        def ends() -> None:
            provider.has_lease = False

        asyncio.get_running_loop().call_later(0.5, ends)
        return await play(provider, series, step, functions)

    (outcome,) = in_virtual_time(main)
    assert outcome.value == "0 second"
    assert outcome.seconds == pytest.approx(1.0 + RENEWAL_SECONDS + 0.1, abs=0.01)


def test_a_time_limit_is_a_failure_of_the_way() -> None:
    hangs = tuple(Call((Reply(100.0),), after=20.0, gives_up=5.0) for _ in range(3))
    series = (*hangs, Call((Reply(1.0),), after=20.0))
    provider = Provider(series)
    step, functions = declared(provider, 1, timeout=5.0, breaker=nl.Breaker(failures=3, within="5m"))
    outcomes = in_virtual_time(lambda: play(provider, series, step, functions))
    assert outcomes[-1].value == "3 second"


def test_a_clients_own_cancelled_error_is_a_failure_of_the_way() -> None:
    async def first(number: int) -> str:
        raise asyncio.CancelledError("the pool was closed")

    async def second(number: int) -> str:
        return "fine"

    step: Any = nl.decision(alternatives=[second])(first).__ninelives__  # type: ignore[attr-defined]
    series = (Call((Reply(0.0),)),)
    (outcome,) = in_virtual_time(lambda: play(Provider(series), series, step, (first, second)))
    assert outcome.value == "fine"
    assert "first ended in CancelledError" in outcome.frame.answered.failed[0]
