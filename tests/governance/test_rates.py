"""Rates of providers: the arithmetic, and two worker processes that share one provider's limit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.governance.rate import REQUESTS, TOKENS, Limit, RateState, due_ms, filled, paused, taken
from ninelives.core.model.run import NewRun, RunQuery, State
from ninelives.engine.spec.registry import find_step
from ninelives.governance.rates import PREFIX, declared_limits
from tests.crash.stores import address, open_at
from tests.workers.test_workers import ROOT, until

STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 50), st.integers(0, 400)), max_size=60)


@given(per_minute=st.integers(1, 3_000), tokens=st.integers(1, 100_000), steps=STEPS)
def test_no_minute_has_more_than_the_limit(
    per_minute: int, tokens: int, steps: list[tuple[int, int, int]]
) -> None:
    limit, state, now = Limit(per_minute=per_minute, tokens_per_minute=tokens), RateState(), 1_000_000
    got: list[tuple[int, int]] = []
    for pause, wanted, most in steps:
        now += pause
        state, found = taken(state, limit, now, {REQUESTS: wanted, TOKENS: wanted * most}, {REQUESTS: 1})
        got.append((now, found.get(REQUESTS, 0)))
        window = [amount for when, amount in got if now - 60_000 < when <= now]
        assert sum(window) <= per_minute


@given(per_minute=st.integers(1, 3_000), used=st.integers(0, 5_000))
def test_at_the_due_time_there_is_enough_for_a_call_and_not_long_before(per_minute: int, used: int) -> None:
    limit = Limit(per_minute=per_minute)
    state = filled(RateState(at_ms=1, left={REQUESTS: -used * 1000}), limit, 1)
    due = due_ms(state, limit, {REQUESTS: 1})
    assert taken(state, limit, due, {REQUESTS: 1}, {REQUESTS: 1})[1] == {REQUESTS: 1}
    if due > 200:
        early = due - due // 10 - 2
        assert taken(state, limit, early, {REQUESTS: 1}, {REQUESTS: 1})[1] == {}


def test_a_call_larger_than_what_can_be_taken_at_once_goes_when_all_is_there_and_leaves_a_debt() -> None:
    limit = Limit(tokens_per_minute=1_200)  # 100 at once
    state, got = taken(RateState(), limit, 1, {TOKENS: 500}, {TOKENS: 500})
    assert (got, state.left[TOKENS]) == ({TOKENS: 500}, -400_000)
    assert taken(state, limit, 2, {TOKENS: 1}, {TOKENS: 1})[1] == {}
    # The debt is paid at the rate of the limit: 400 tokens and one more, at 1,100 a minute.
    assert 21_000 < due_ms(state, limit, {TOKENS: 1}) < 23_000


def test_a_clock_that_goes_back_gives_nothing() -> None:
    limit = Limit(per_minute=60)
    state, _ = taken(RateState(), limit, 1_000_000, {REQUESTS: 5}, {REQUESTS: 1})
    back = filled(state, limit, 1_000)
    assert (back.left, back.at_ms) == (state.left, 1_000_000)


def test_a_shorter_pause_does_not_replace_a_longer_one() -> None:
    state = paused(RateState(), 9_000, "429")
    assert paused(state, 5_000, "other") == state


@pytest.mark.parametrize(
    "wrong",
    [{"per_minute": 0}, {"tokens_per_minute": 1.5}, {"per_minute": True}, {"key": "a\nb"}, {"key": ""}],
)
def test_a_limit_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Limit(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"nl\.Limit"):
        nl.decision(name="ask", limit=wrong)(lambda: None)  # type: ignore[call-overload]


def test_steps_of_one_key_agree_on_its_numbers() -> None:
    @nl.decision(name="one", limit=Limit(per_minute=5, key="p"))
    async def one() -> None:
        """Ask."""

    @nl.decision(name="two", limit=Limit(per_minute=6, key="p"))
    async def two() -> None:
        """Ask."""

    steps = {name: step for name in ("one", "two") if (step := find_step(name)) is not None}
    with pytest.raises(UsageError, match="share the limit 'p', with different numbers"):
        declared_limits(steps)


@contextmanager
def workers(ground: Path, ledger: Path, calls: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            command = [
                sys.executable,
                "-m",
                "tests.governance.rate_agents",
                address(ground),
                str(ledger),
                str(calls),
            ]
            child = subprocess.Popen(command, cwd=ROOT)
            stack.callback(child.wait)
            stack.callback(child.kill)
            found.append(child)
        yield found


def requests(ledger: Path) -> list[tuple[float, int, str]]:
    rows = (line.split() for line in ledger.read_text().splitlines())
    return [(int(at) / 1e9, int(pid), status) for at, pid, status in rows]


def started(ground: Path, number: int) -> None:
    store = open_at(ground)
    names = [f"user-{one}" for one in range(number)]
    store.create_runs([NewRun(id=one, agent="user", fingerprint=b"f", body=b"{}") for one in names])
    store.close()


def test_two_workers_stay_below_the_limit_together_and_use_it_up(ground: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    started(ground, 30)
    store = open_at(ground)
    with workers(ground, ledger, 4):
        until(lambda: len(store.list_runs(RunQuery(states=(State.COMPLETED,)))) == 30)
    times = [at for at, _, _ in requests(ledger)]
    assert len(times) == 120
    assert len({pid for _, pid, _ in requests(ledger)}) == 2
    # 50 at once, then 550 a minute: whatever part of the time is looked at.
    for first in range(0, 120, 10):
        for last in range(first + 60, 120, 10):
            assert last - first <= 50 + (times[last] - times[first] + 0.5) * 550 / 60
    store.close()


def test_what_a_killed_worker_had_taken_is_lost_and_no_more(ground: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    started(ground, 20)
    store = open_at(ground)
    with workers(ground, ledger, 6) as (first, _):
        until(lambda: len(requests(ledger)) > 50)
        first.kill()
        until(lambda: len(store.list_runs(RunQuery(states=(State.COMPLETED,)))) == 20)
    times = [at for at, _, _ in requests(ledger)]
    # What was under way at the kill is asked again, and counts again.
    assert 120 <= len(times) <= 160
    for first_at in range(0, len(times) - 60, 10):
        width = times[first_at + 60] - times[first_at]
        assert width > (60 - 50 - 5) * 60 / 550
    store.close()


def test_a_retry_after_is_found_out_by_few_and_kept_by_all(ground: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    busy = Path(f"{ledger}.busy")
    ledger.touch()
    busy.touch()
    store = open_at(ground)
    with workers(ground, ledger, 1):
        started(ground, 40)
        until(lambda: any(store.read_documents(PREFIX)))
        until(lambda: json.loads(store.read_documents(PREFIX)[0].body).get("until_ms"))
        until(lambda: "takes calls again" in "".join(run.waits for run in store.list_runs(RunQuery())))
        busy.unlink()
        until(lambda: len(store.list_runs(RunQuery(states=(State.COMPLETED,)))) == 40)
    found = requests(ledger)
    refused = [one for one in found if one[2] == "429"]
    # Each process asks with what it has at hand before the first answer is back; the others wait unasked.
    after = [one for one in found if refused[0][0] + 3 < one[0] < refused[0][0] + 4.9]
    assert after == []
    assert len(refused) <= 40
    store.close()
