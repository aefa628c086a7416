"""The sandbox: time is skipped, people and signals are the test's, and kills leave what real ones leave."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

import ninelives as nl
from ninelives.core.model.run import State
from ninelives.engine.spec.registry import AGENTS, STEPS
from ninelives.testing import (
    NotCrashproof,
    Sandbox,
    SandboxItem,
    Script,
    SkippingClock,
    Stuck,
    after,
    crashproof,
)
from ninelives.testing.kill_trials import choose

MONTH = timedelta(days=30)


def is_about(passed: timedelta, expected: timedelta) -> bool:
    """Tell whether so much time has passed, but for what a machine that stands still may add."""
    return expected <= passed < expected + timedelta(minutes=2)


def test_a_month_of_sleep_is_skipped() -> None:
    with Sandbox(start=datetime(2030, 3, 1, tzinfo=UTC)) as sandbox:

        @nl.agent
        async def patient() -> list[datetime]:
            before = nl.now()
            await nl.sleep(MONTH.total_seconds())
            return [before, nl.now()]

        before, after_it = sandbox.run(patient)
        assert before == datetime(2030, 3, 1, tzinfo=UTC)
        assert is_about(after_it - before, MONTH)
        assert is_about(sandbox.clock.now() - before, MONTH)


def test_plain_agents_sleep_as_quickly() -> None:
    with Sandbox() as sandbox:

        @nl.action
        def send(to: str) -> str:
            return f"sent to {to}"

        @nl.agent
        def patient() -> str:
            nl.sync.sleep(MONTH.total_seconds())
            return send("ann")

        began = sandbox.clock.now()
        assert sandbox.run(patient) == "sent to ann"
        assert sandbox.clock.now() - began >= MONTH


def test_delays_retries_and_limits_of_bodies_are_skipped() -> None:
    model = Script(TimeoutError("busy"), ConnectionError("away"), after(3600, "late"), after(7200, "later"))
    with Sandbox() as sandbox:

        @nl.decision
        async def choose() -> str:
            answer: str = await model()
            return answer

        @nl.agent
        async def hasty() -> list[str]:
            told = [await choose()]
            try:
                async with nl.timeout(60):
                    told.append(await choose())
            except nl.TimedOut:
                told.append("in time")
            return told

        began = sandbox.clock.now()
        assert sandbox.run(hasty) == ["late", "in time"]
        assert is_about(sandbox.clock.now() - began, timedelta(seconds=3660))
        assert (len(model.calls), model.asked, model.left) == (4, 4, 0)


def test_skip_works_on_what_falls_due_and_on_nothing_later() -> None:
    woken: list[tuple[str, timedelta]] = []
    with Sandbox() as sandbox:
        began = sandbox.clock.now()

        @nl.action
        async def note(name: str) -> None:
            woken.append((name, sandbox.clock.now() - began))

        @nl.agent
        async def sleeper(name: str, days: int) -> None:
            for _ in range(days):
                await nl.sleep(86_400)
            await note(name)

        runs = [sandbox.start(sleeper, name, days) for name, days in (("late", 3), ("early", 1))]
        sandbox.work()
        assert woken == []
        sandbox.skip(timedelta(days=2))
        assert [name for name, _ in woken] == ["early"]
        assert is_about(woken[0][1], timedelta(days=1))
        assert [run.status() for run in runs] == [State.CHECKPOINTED, State.COMPLETED]
        assert is_about(sandbox.clock.now() - began, timedelta(days=2))
        runs[0].result()
        assert [name for name, _ in woken] == ["early", "late"]
        assert is_about(woken[1][1], timedelta(days=3))


def test_a_question_is_answered_or_its_deadline_passes() -> None:
    with Sandbox() as sandbox:

        @nl.agent
        async def asks() -> str:
            return await nl.ask("Which one?", ["red", "blue"], timeout=86_400, default="blue")

        run = sandbox.start(asks)
        sandbox.work()
        (item,) = sandbox.inbox()
        assert (item.kind, item.asked.what) == ("question", "Which one?")
        item.answer("red")
        assert run.result() == "red"
        began = sandbox.clock.now()
        assert sandbox.run(asks) == "blue"
        assert is_about(sandbox.clock.now() - began, timedelta(days=1))


def test_approvals_are_given_by_the_tests_person() -> None:
    with Sandbox() as sandbox:

        @nl.action(approval=nl.Approval(timeout=3600))
        async def refund(order: str) -> str:
            return f"refunded {order}"

        @nl.agent
        async def support(order: str) -> str:
            try:
                return await refund(order)
            except nl.Denied as no:
                return str(no)

        asked: list[str] = []

        def person(item: SandboxItem) -> None:
            asked.append(item.run)
            if item.run == "yes":
                item.approve(by="ann")
            elif item.run == "no":
                item.deny(by="ann", note="not again")

        sandbox.person = person
        assert sandbox.run(support, "A-1", id="yes") == "refunded A-1"
        assert "not again" in sandbox.run(support, "A-2", id="no")
        assert "refunded" not in sandbox.run(support, "A-3", id="left alone")  # by its deadline
        assert asked == ["yes", "no", "left alone"]


def test_a_person_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ninelives.testing.sandbox.MOST_QUESTIONS", 5)
    with Sandbox() as sandbox:

        @nl.agent
        async def insists() -> None:
            while await nl.ask("Once more?", ["yes", "no"]) == "yes":
                pass

        sandbox.person = lambda item: item.answer("yes")
        with pytest.raises(Stuck, match=r"asked 5 times; last: Once more\?"):
            sandbox.run(insists)


def test_signals_reach_the_run_and_what_nobody_sends_is_named() -> None:
    with Sandbox() as sandbox:

        @nl.agent
        async def waits() -> int:
            return await nl.receive("paid", type=int)

        run = sandbox.start(waits, id="order-7")
        with pytest.raises(Stuck, match=r"run 'order-7' waits for the signal 'paid'"):
            run.result()
        run.signal("paid", 12)
        assert run.result() == 12


def test_a_limit_on_real_waiting_holds() -> None:
    with Sandbox() as sandbox:
        never = threading.Event()

        @nl.agent
        async def stuck() -> str:
            try:
                async with nl.timeout(0.3):
                    await look()
            except nl.TimedOut:
                never.set()
            return "left"

        @nl.action(retry=nl.Retry(attempts=1))
        async def look() -> bool:
            return await asyncio.to_thread(never.wait, 60)

        assert sandbox.run(stuck) == "left"


def test_what_the_test_declared_and_opened_is_gone_afterwards() -> None:
    agents, steps, thresholds = dict(AGENTS), dict(STEPS), gc.get_threshold()

    def story(sandbox: Sandbox) -> str:
        @nl.action
        async def act() -> str:
            return "done"

        @nl.agent
        async def small() -> str:
            return await act()

        result: str = sandbox.run(small)
        return result

    crashproof(story, kills=2)
    files = len(os.listdir("/proc/self/fd"))
    assert crashproof(story).outcome == "done"
    assert len(os.listdir("/proc/self/fd")) < files + 10
    assert (AGENTS, STEPS, gc.get_threshold()) == (agents, steps, thresholds)


def test_a_sandbox_is_refused_inside_an_event_loop() -> None:
    async def main() -> None:
        with Sandbox() as sandbox:
            sandbox.work()

    with pytest.raises(nl.UsageError, match="its own event loop"):
        asyncio.run(main())


def test_a_clock_takes_moments_only() -> None:
    with pytest.raises(nl.UsageError, match="no time zone"):
        SkippingClock(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(nl.UsageError, match="cannot be skipped"):
        SkippingClock().skip(-1)


# Kills ------------------------------------------------------------------------------------------


class Shop:
    """The world outside: it survives every kill, and knows its keys, if it is a good one."""

    def __init__(self, *, knows_keys: bool) -> None:
        self._knows_keys, self.refunds = knows_keys, list[str]()

    def refund(self, order: str, key: str) -> str:
        """Refund an order, once per key."""
        if not self._knows_keys or key not in self.refunds:
            self.refunds.append(key if self._knows_keys else order)
        return f"refunded {order}"


def refunds(sandbox: Sandbox, shop: Shop, *, is_plain: bool = False) -> object:
    if is_plain:

        @nl.action
        def refund(order: str) -> str:
            return shop.refund(order, nl.key())

        @nl.agent
        def support(order: str) -> list[str]:
            return [refund(order), *nl.sync.map(refund, ["B-1", "B-2"])]

        return sandbox.run(support, "A-1"), sorted(shop.refunds)

    @nl.action(name="refund")
    async def refund_soon(order: str) -> str:
        return shop.refund(order, nl.key())

    @nl.agent(name="support")
    async def support_soon(order: str) -> list[str]:
        await nl.sleep(86_400)
        return [await refund_soon(order), *await nl.gather(refund_soon("B-1"), refund_soon("B-2"))]

    return sandbox.run(support_soon, "A-1"), sorted(shop.refunds)


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_story_with_keys_ends_alike_wherever_it_is_killed(is_plain: bool) -> None:
    tried = crashproof(lambda sandbox: refunds(sandbox, Shop(knows_keys=True), is_plain=is_plain))
    assert len(tried.kills) >= 16
    windows = {kill.rpartition(" ")[0] for kill in tried.kills}
    assert {"before commit", "after commit", "before claim_runs", "after create_runs"} <= windows


def test_nested_kills_end_alike_too() -> None:
    tried = crashproof(lambda sandbox: refunds(sandbox, Shop(knows_keys=True)), kills=12, deaths=3)
    assert len(tried.kills) > 20


def test_an_effect_without_a_key_is_found_and_the_kill_is_named() -> None:
    with pytest.raises(NotCrashproof, match=r"killed before commit \d+") as found:
        crashproof(lambda sandbox: refunds(sandbox, Shop(knows_keys=False)))
    assert "['A-1', 'A-1', 'B-1', 'B-2']" in str(found.value)


def test_a_story_that_differs_by_itself_is_told_so() -> None:
    told: list[int] = []

    def story(sandbox: Sandbox) -> int:
        told.append(1)
        refunds(sandbox, Shop(knows_keys=True))
        return len(told)

    with pytest.raises(NotCrashproof, match="without any kill"):
        crashproof(story)


def test_of_few_kills_those_between_an_act_and_its_record_come_first() -> None:
    calls = ["create_runs", "claim_runs", "commit", "commit", "claim_runs", "commit", "end_sessions"]
    commits = [f"commit:{number}" for number in (1, 2, 3)]
    both = {f"{at}:{one}" for one in commits for at in ("before", "after")}
    assert [str(kill) for kill in choose(calls, 3)] == [f"before:{one}" for one in commits]
    assert {str(kill) for kill in choose(calls, 6)} == both
    for kills in range(1, 15):
        assert len(set(choose(calls, kills))) == kills


def test_kills_are_spread_and_bad_numbers_refused() -> None:
    tried = crashproof(lambda sandbox: refunds(sandbox, Shop(knows_keys=True)), kills=6)
    assert len(tried.kills) + tried.missed == 6
    for kills in (0, -1, True):
        with pytest.raises(nl.UsageError, match="kills="):
            crashproof(lambda sandbox: refunds(sandbox, Shop(knows_keys=True)), kills=kills)
    with pytest.raises(nl.UsageError, match="nothing was run"):
        crashproof(lambda _: None)


def test_a_killed_life_runs_no_finally() -> None:
    def story(sandbox: Sandbox) -> list[str]:
        did: list[str] = []

        @nl.action
        async def act() -> None:
            did.append("acted")

        @nl.agent
        async def tidy() -> None:
            try:
                await act()
            finally:
                did.append("tidied")

        sandbox.run(tidy)
        ends.append(did)
        return did[-1:]

    ends: list[list[str]] = []
    crashproof(story)
    gc.collect()
    # Where the body was executed twice, the first life died before its agent could go on.
    cut_short = [did for did in ends if did.count("acted") == 2]
    assert cut_short
    assert all(did.count("tidied") == 1 for did in cut_short)


def test_a_doubt_goes_to_the_tests_person() -> None:
    def story(sandbox: Sandbox) -> tuple[str, int]:
        wired: list[str] = []

        @nl.action(resumable=False)
        async def wire(order: str) -> str:
            wired.append(order)
            return "wired"

        @nl.agent
        async def pays() -> str:
            return await wire("A-1")

        def person(item: SandboxItem) -> None:
            if wired:
                item.settle(happened=True, result="wired")
            else:
                item.settle(happened=False)

        sandbox.person = person
        return sandbox.run(pays), len(wired)

    assert crashproof(story).outcome == ("wired", 1)


def test_families_signals_and_answers_survive_every_kill() -> None:
    def story(sandbox: Sandbox) -> list[str]:
        @nl.agent
        async def child(name: str) -> str:
            await nl.sleep(60)
            return name

        @nl.agent(durability="pipelined")
        async def parent() -> list[str]:
            children = [await nl.spawn(child, name) for name in ("one", "two")]
            said = await nl.ask("Go on?", ["yes", "no"])
            paid = await nl.receive("paid", type=str)
            return [said, paid, *[await one.result() for one in children]]

        sandbox.person = lambda item: item.answer("yes")
        run = sandbox.start(parent)
        run.signal("paid", "12")
        result: list[str] = run.result()
        return result

    assert crashproof(story, kills=40).outcome == ["yes", "12", "one", "two"]


# Scripts ----------------------------------------------------------------------------------------


def test_a_script_tells_a_repeated_step_the_same() -> None:
    def story(sandbox: Sandbox) -> list[str]:
        model = Script("first", ConnectionError("away"), "second", lambda x: f"third of {x}", "fourth")

        @nl.decision
        async def choose(x: str) -> str:
            answer: str = await model(x)
            return answer

        @nl.decision
        async def twice() -> list[str]:
            return [await model("a"), await model("b")]

        @nl.agent
        async def thinker() -> list[str]:
            return [await choose("x"), await choose("y"), *await twice()]

        return [*sandbox.run(thinker), str(model.left)]

    assert crashproof(story).outcome == ["first", "second", "third of a", "fourth", "0"]


def test_a_script_that_is_asked_too_often_says_so() -> None:
    model = Script("only")
    assert model.ask("x") == "only"
    with pytest.raises(nl.Permanent, match="has 1 answers"):
        model.ask("y")
    assert [call.args for call in model.calls] == [("x",), ("y",)]
