"""Circuit breakers: the rules, and two worker processes with one sick tool between them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.governance.breaker import Breaker, BreakerState, claimed, failed, tried
from ninelives.core.model.run import NewRun, State
from ninelives.governance import breakers
from ninelives.governance.breakers import read_breakers
from tests.crash.stores import address, open_at
from tests.workers.test_workers import ROOT, row, until

RULE = Breaker(failures=3, within="1m", open="30s")


def test_failures_within_the_window_open_it_and_older_ones_do_not() -> None:
    state = failed(BreakerState(), RULE, [1_000, 2_000], 2_000, "first")
    assert state.state == "closed"
    assert failed(state, RULE, [70_000], 70_000, "late").state == "closed"
    opened = failed(state, RULE, [3_000], 3_000, "third")
    assert (opened.state, opened.until_ms, opened.opened, opened.error) == ("open", 33_000, 1, "third")
    assert failed(opened, RULE, [4_000], 4_000, "later") == opened


def test_one_process_tries_and_its_outcome_decides() -> None:
    opened = failed(BreakerState(), RULE, [1, 2, 3], 3, "away")
    assert claimed(opened, RULE, "a", opened.until_ms - 1) == opened
    half = claimed(opened, RULE, "a", opened.until_ms)
    assert (half.state, half.by) == ("half", "a")
    assert claimed(half, RULE, "b", half.until_ms - 1) == half
    assert tried(half, RULE, "b", 5, None) == half
    assert tried(half, RULE, "a", 5, None).state == "closed"
    again = tried(half, RULE, "a", 40_000, "still away")
    assert (again.state, again.until_ms, again.opened) == ("open", 70_000, 2)
    # The process that may try has died: another one may, once the time is over.
    assert claimed(half, RULE, "b", half.until_ms).by == "b"


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"failures": 1.5}, {"within": "soon"}, {"open": "0s"}])
def test_a_breaker_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Breaker(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        nl.action(breaker=wrong)(lambda: None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"actions": ["charge"], "failures": "five"},
        {"actions": ["charge"], "fails": 5},
        {"actions": ["chrage"]},
        {"actions": []},
        {"actions": ["charge"], "in": "1 minute"},
        {"actions": ["charge"], "failures": 0},
    ],
)
def test_a_table_with_a_mistake_is_refused(table: dict[str, object]) -> None:
    @nl.action(name="charge")
    async def charge() -> None:
        """Charge."""

    assert breakers.check([{"actions": ["ch*"], "failures": 2, "in": "30s", "open": "1m"}]) == (
        (("ch*",), Breaker(failures=2, within="30s", open="1m")),
    )
    with pytest.raises(UsageError):
        breakers.check([table], names={"charge"})


def test_one_sick_tool_is_left_in_peace_by_all_workers_until_it_works(
    ground: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store, ledger = open_at(ground), tmp_path / "ledger"
    ledger.touch()
    sick = Path(f"{ledger}.sick")
    sick.touch()
    names = [f"user-{number}" for number in range(40)]
    store.create_runs([NewRun(id=one, agent="user", fingerprint=b"f", body=b"{}") for one in names])
    with ExitStack() as stack:
        for _ in range(2):
            command = [sys.executable, "-m", "tests.governance.breaker_agents", address(ground), str(ledger)]
            child = subprocess.Popen(command, cwd=ROOT)
            stack.callback(child.wait)
            stack.callback(child.kill)
        until(lambda: "call_tool" in read_breakers(store))
        until(lambda: read_breakers(store)["call_tool"].opened > 1)
        until(lambda: sum("breaker of 'call_tool'" in row(store, name).waits for name in names) > 30)
        # Whatever uses another tool is not held up.
        store.create_runs([NewRun(id="idler", agent="idler", fingerprint=b"f", body=b"{}")])
        until(lambda: row(store, "idler").state is State.COMPLETED)
        times_ns = [int(line.split()[3]) for line in ledger.read_text().splitlines()]
        after = [one for one in times_ns if one > times_ns[0] + 1_500_000_000]
        print(f"{request.node.name}: {len(times_ns)} calls of 40 runs, {len(after)} of them after 1.5 s")
        # Once open, one call at a time is tried: about one each two seconds.
        assert len(after) <= 1 + (times_ns[-1] - times_ns[0]) / 2e9
        sick.unlink()
        until(lambda: all(row(store, name).state is State.COMPLETED for name in names))
        assert read_breakers(store) == {}
    store.close()
