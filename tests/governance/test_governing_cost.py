"""What governing may cost: no commit for a verdict, one for a reservation, and no other thread for either."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.governance.accounts import Reserve
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.governance import install
from ninelives.runtime import runtime
from ninelives.runtime.runtime import ProcessOptions
from ninelives.stores.sqlite import checks, lookups
from ninelives.stores.sqlite.store import SqliteStore
from tests.clocks import SteppingClock
from tests.contract.benches import Bench, make_bench
from tests.contract.makers import append, damage_in, new_run

STEPS = 12
MOST_CALLS = 100
"""Of functions, for a call that ten rules are asked about and that is allowed."""
POLICY = '[policy]\nname = "cost"\ndefault = "allow"\n'
BUDGET = '[[budget]]\nname = "all"\nscope = "store"\nper = "day"\nactions = 1_000\n'


@nl.action(name="cost.step")
async def step(number: int) -> int:
    return number


@nl.agent(name="cost.agent")
async def agent(steps: int) -> int:
    for number in range(steps):
        await step(number)
    return steps


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench on SQLite, whose shortcuts these tests are about."""
    made = make_bench("sqlite", SteppingClock(), tmp_path)
    yield made
    made.close()


def usd(limit: int) -> Reserve:
    return Reserve("budget/a", {"usd": 1}, {"usd": limit})


def started(bench: Bench) -> list[Any]:
    bench.session("s1", lease_ms=1_000_000)
    bench.store.create_runs([new_run(f"r{number}") for number in range(4)])
    runs = bench.store.claim_runs("s1", 4, {"helper": 4}).runs
    # Once, so that the process knows their rows.
    bench.store.commit([append(run, b"first") for run in runs])
    return [bench.row(run.id) for run in runs]


def charged(bench: Bench, limit: int) -> list[Outcome]:
    runs = started(bench)
    return [
        one.outcome for one in bench.store.commit([append(run, b"x", accounts=[usd(limit)]) for run in runs])
    ]


def standing(bench: Bench) -> Any:
    (found,) = bench.store.read_documents("budget/a")
    return msgspec.json.decode(found.body)["reserved"]


def commits_of(directory: Path, policy: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the thread of each commit that a step's records were in, of one run alone on its loop."""
    text = directory / "policy.toml"
    text.write_text(policy, encoding="utf-8")
    real, threads = SqliteStore.commit, list[int]()

    def counted(store: SqliteStore, batch: Sequence[Commit]) -> list[Verdict]:
        if any("cost.step" in record.step for one in batch for record in one.records):
            threads.append(threading.get_ident())
        return real(store, batch)

    async def main() -> None:
        process = ProcessOptions(is_dedicated=True)
        url, given = f"sqlite:///{directory / 'runs.db'}", (text,) if policy else ()
        async with nl.Runtime(url, policy=given, process=process) as rt:
            assert await rt.run(agent, STEPS) == STEPS

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "commit", counted)
        asyncio.run(main())
    return threads


@pytest.mark.parametrize(("policy", "commits"), [("", 1), (POLICY, 1), (POLICY + BUDGET, 2)])
def test_a_verdict_costs_no_commit_a_reservation_one_and_neither_another_thread(
    policy: str, commits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = commits_of(tmp_path, policy, monkeypatch)
    assert len(threads) == commits * STEPS
    here = threads.count(threading.get_ident())
    # A few may go by the committer's thread: where the loop had something else to do just then.
    assert here >= len(threads) - 4


def calls_per_step(policy: Path | None) -> tuple[float, set[str]]:
    """Return how many functions a step calls on the thread of its run, and the modules that they are in."""
    counts, modules = dict[int, int](), set[str]()

    async def main(steps: int) -> None:
        process = ProcessOptions(is_dedicated=True)
        async with nl.Runtime("memory:", policy=policy or (), process=process) as rt:
            await rt.run(agent, STEPS)  # what the first call prepares is no step's
            count = 0

            def note(frame: Any, event: str, __: Any) -> None:
                nonlocal count
                count += event in ("call", "c_call")
                modules.add(frame.f_globals.get("__name__", ""))

            sys.setprofile(note)
            try:
                await rt.run(agent, steps)
            finally:
                sys.setprofile(None)
            counts[steps] = min(count, counts.get(steps, count))

    for _ in range(5):  # the fewest: at times a commit takes the way over the committer's thread
        for steps in (10, 60):
            asyncio.run(main(steps))
    return (counts[60] - counts[10]) / 50, modules


def test_a_plain_allow_costs_few_calls_and_a_step_that_nothing_governs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Breakers and limits that other tests have declared in this process are no part of a plain allow.
    monkeypatch.setattr(install, "declared_breakers", dict)
    monkeypatch.setattr(install, "declared_limits", lambda _: {})
    monkeypatch.setattr(runtime, "needs_governor", lambda: False)
    # Counted, not timed: the same on every machine. Microseconds are in docs/governance-cost.md.
    policy = tmp_path / "policy.toml"
    rule = '[[rule]]\nid = "{}"\nactions = ["cost.step"]\nwhen = "number > {}"\ndo = "deny"\n'
    policy.write_text(POLICY + "".join(rule.format(f"r{one}", 1_000 + one) for one in range(10)))
    governed, asked = calls_per_step(policy)
    free, others = calls_per_step(None)
    assert governed - free < MOST_CALLS, governed - free
    gate = {"ninelives.engine.step.gate", "ninelives.engine.step.judging"}
    assert gate <= asked
    assert not gate & others
    assert not [one for one in others if one.startswith("ninelives.governance")]


def test_commits_of_a_batch_write_each_account_once(sqlite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = list[str]()
    real = lookups.save_document

    def counted(tx: Any, document: Any) -> bool:
        saved.append(document.name)
        return real(tx, document)

    monkeypatch.setattr(lookups, "save_document", counted)
    assert charged(sqlite, limit=100) == [Outcome.COMMITTED] * 4
    assert saved == ["budget/a"]
    assert standing(sqlite) == {"usd": 4}


def test_a_batch_charges_once_what_it_appends_even_if_a_row_is_not_as_it_was_known(
    sqlite: Bench,
) -> None:
    """What is known of one row is wrong: the appends of the others are taken back, and made again."""
    runs = started(sqlite)
    known, _, row = checks.HOT["r2"]
    checks.HOT["r2"] = known, b"?" * 16, row
    said = sqlite.store.commit([append(run, b"x", accounts=[usd(10)]) for run in runs])
    assert [one.outcome for one in said] == [Outcome.COMMITTED] * 4
    assert standing(sqlite) == {"usd": 4}
    assert [sqlite.row(run.id).length for run in runs] == [run.length + 1 for run in runs]
    assert damage_in(sqlite.store) == []


def test_a_run_that_was_lost_charges_nothing_and_the_others_of_its_batch_do(sqlite: Bench) -> None:
    runs = started(sqlite)
    lost = replace(runs[1], epoch=runs[1].epoch - 1)
    batch = [append(run, b"x", accounts=[usd(10)]) for run in (runs[0], lost, *runs[2:])]
    done, fenced = Outcome.COMMITTED, Outcome.FENCED
    assert [one.outcome for one in sqlite.store.commit(batch)] == [done, fenced, done, done]
    assert standing(sqlite) == {"usd": 3}


def test_a_batch_stops_at_the_limit(sqlite: Bench) -> None:
    assert charged(sqlite, limit=2) == [Outcome.COMMITTED] * 2 + [Outcome.OVER] * 2
    assert standing(sqlite) == {"usd": 2}
