"""Steps: how they are declared, called, tried again, limited in time, and refused."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, Stage, once, run_async, twice

QUICK = nl.Retry(attempts=3, base_seconds=0.0001, max_seconds=0.001)


@nl.action
async def add(left: int, right: int = 1) -> int:
    return left + right


@nl.action
def multiply(left: int, right: int) -> int:
    return left * right


def test_without_a_runtime_steps_are_ordinary_functions() -> None:
    assert asyncio.run(add(1, 2)) == 3
    assert multiply(2, 3) == 6
    assert add.__name__ == "add"


def test_while_a_runtime_lives_a_step_outside_a_run_is_refused() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()):
            with pytest.raises(nl.NoRun, match="add was called outside a run"):
                await add(1, 2)
            with pytest.raises(nl.NoRun, match="multiply"):
                multiply(1, 2)
            assert await add.raw(1, 2) == 3
            assert multiply.raw(2, 3) == 6
        assert await add(1, 2) == 3

    run_async(main)


def test_a_step_in_an_executor_that_lost_the_run_is_refused() -> None:
    @nl.agent(name="lossy")
    async def agent() -> list[str]:
        def lost() -> str:
            try:
                multiply(2, 3)
            except nl.NoRun as error:
                return str(error)
            return "acted unprotected"

        with ThreadPoolExecutor(1) as pool:
            said = [pool.submit(lost).result()]
        thread = threading.Thread(target=lambda: said.append(lost()))
        thread.start()
        thread.join()
        return said

    for said in once(agent):
        assert "outside a run" in said
        assert "asyncio.to_thread" in said


def test_a_plain_step_runs_through_to_thread() -> None:
    @nl.agent(name="lending")
    async def agent() -> int:
        return await asyncio.to_thread(multiply, 6, 7)

    assert once(agent) == 42


def test_a_plain_step_on_the_event_loop_is_refused() -> None:
    @nl.agent(name="blocking")
    async def agent() -> int:
        return multiply(6, 7)

    with pytest.raises(nl.RunFailed, match=r"asyncio\.to_thread") as caught:
        once(agent)
    assert isinstance(caught.value.__cause__, nl.UsageError)


class Desk:
    """A class with steps."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    @nl.action
    async def price(self, cents: int) -> int:
        return cents * self.rate


def test_methods_closures_and_wrapped_functions_are_steps() -> None:
    stage = Stage()

    async def fetch(url: str) -> str:
        return str(stage.did(f"page of {url}"))

    wrapped = nl.action(fetch, name="fetch", returns=str)

    @nl.agent(name="shapes")
    async def agent() -> list[Any]:
        factor = 3

        @nl.action(name="closure")
        async def closure(value: int) -> int:
            return value * factor

        @nl.action(name="stop")
        async def stop() -> None:
            await stage.stop_here()

        found = [await Desk(2).price(21), await closure(5), await wrapped("x")]
        await stop()
        return found

    assert twice(stage, agent) == [42, 15, "page of x"]
    assert stage.executed == []


def test_a_step_inside_a_step_is_part_of_its_body() -> None:
    @nl.action(name="outer")
    async def outer() -> list[str]:
        return [nl.key(), await inner()]

    @nl.action(name="inner")
    async def inner() -> str:
        return nl.key()

    @nl.agent(name="inline")
    async def agent() -> list[str]:
        return await outer()

    first, second = once(agent)
    assert first == second


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("outer_is", ["decision", "reads_only action"])
def test_an_effect_inside_a_decision_or_a_read_is_refused(outer_is: str, is_plain: bool) -> None:
    done: list[str] = []

    @nl.action(name="mail")
    async def mail() -> None:
        done.append("mail")

    @nl.action(name="mail_plainly")
    def mail_plainly() -> None:
        done.append("mail")

    @nl.action(name="look", reads_only=True)
    async def look() -> str:
        return "seen"

    async def body() -> None:
        assert await look() == "seen"
        if is_plain:
            await asyncio.to_thread(mail_plainly)
        else:
            await asyncio.create_task(mail())

    if outer_is == "decision":
        outer = nl.decision(body, name="outer")
    else:
        outer = nl.action(body, name="outer", reads_only=True)

    @nl.agent(name="inline")
    async def agent() -> None:
        await outer()

    with pytest.raises(nl.RunFailed, match=rf"mail\w* is called inside the {outer_is} outer"):
        once(agent)
    assert done == []


def test_an_effect_may_be_inside_a_decision_that_is_part_of_an_action() -> None:
    @nl.action(name="mail")
    async def mail() -> str:
        return "sent"

    @nl.decision(name="think")
    async def think() -> str:
        return await mail()

    @nl.action(name="outer")
    async def outer() -> str:
        return await think()

    @nl.agent(name="inline")
    async def agent() -> str:
        return await outer()

    assert once(agent) == "sent"


def test_a_transient_failure_is_tried_again_under_the_same_key() -> None:
    seen: list[tuple[int, str]] = []

    @nl.action(name="shaky", retry=QUICK)
    async def shaky() -> str:
        seen.append((nl.info().attempt, nl.key()))
        if len(seen) < 3:
            raise nl.Transient("later")
        return "done"

    @nl.agent(name="retrying")
    async def agent() -> str:
        return await shaky()

    assert once(agent) == "done"
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    assert len({key for _, key in seen}) == 1


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (nl.Permanent("no"), 1),
        (ValueError("no"), 1),
        (nl.Transient("no"), 3),
        (ConnectionResetError("no"), 3),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else str(one),
)
def test_only_what_may_pass_is_tried_again(error: Exception, attempts: int) -> None:
    seen: list[int] = []

    @nl.action(name="failing", retry=QUICK)
    async def failing() -> None:
        seen.append(nl.info().attempt)
        raise error

    @nl.agent(name="failed")
    async def agent() -> str:
        try:
            await failing()
        except Exception as caught:
            return type(caught).__name__
        return "none"

    assert once(agent) == type(error).__name__
    assert len(seen) == attempts


def test_what_a_server_asks_to_wait_is_waited() -> None:
    times: list[float] = []

    @nl.action(name="limited", retry=QUICK)
    async def limited() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise nl.Transient("slow down", retry_after_seconds=0.05)

    @nl.agent(name="waiting")
    async def agent() -> None:
        await limited()

    once(agent)
    assert times[1] - times[0] >= 0.05


def test_a_final_failure_is_raised_again_without_execution() -> None:
    stage, seen = Stage(), []

    @nl.action(name="fail", retry=QUICK)
    async def fail() -> None:
        stage.did("fail")
        raise nl.Transient("gone for good")

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="final")
    async def agent() -> None:
        with pytest.raises(nl.Transient) as caught:
            await fail()
        seen.append(str(caught.value))
        await stop()

    twice(stage, agent)
    assert stage.executed == []
    assert seen == ["gone for good"] * 2


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_steps_own_timeout_ends_its_attempt(attempts: int) -> None:
    seen: list[int] = []

    @nl.action(name="slow", timeout=0.005, retry=nl.Retry(attempts=attempts, base_seconds=0.0001))
    async def slow() -> None:
        seen.append(1)
        await asyncio.Event().wait()

    @nl.agent(name="timed")
    async def agent() -> str:
        with pytest.raises(TimeoutError):
            await slow()
        return "went on"

    assert once(agent) == "went on"
    assert len(seen) == attempts


def test_after_a_steps_own_timeout_the_branch_can_be_cancelled() -> None:
    @nl.action(name="slow", timeout=0.002, retry=nl.Retry(attempts=1))
    async def slow() -> None:
        await asyncio.Event().wait()

    began = asyncio.Event()

    @nl.action(name="hang")
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    @nl.action(name="wait")
    async def wait() -> None:
        await began.wait()

    @nl.agent(name="dropping")
    async def agent() -> str:
        async def loser() -> None:
            with pytest.raises(TimeoutError):
                await slow()
            await hang()

        task = asyncio.create_task(loser())
        await wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    assert once(agent) == "cancelled"


def test_a_body_that_swallows_its_cancellation_is_withdrawn_all_the_same() -> None:
    stage, seen = Stage(), []
    began = asyncio.Event()

    @nl.action(name="tidy")
    async def tidy() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "half"
        return "whole"

    @nl.action(name="wait")
    async def wait() -> None:
        await began.wait()

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="swallowing")
    async def agent() -> None:
        task = asyncio.create_task(tidy())
        await wait()
        task.cancel()
        try:
            seen.append(await task)
        except asyncio.CancelledError:
            seen.append("cancelled")
        await stop()

    twice(stage, agent)
    assert seen[0] == seen[1]


def test_plain_agents_and_steps_survive_too() -> None:
    stage = Stage()
    stopped = threading.Event()

    @nl.action(name="plain-step")
    def step(number: int) -> int:
        return int(stage.did(number * 2))

    @nl.action(name="plain-stop")
    def stop() -> None:
        if not stage.is_second and stage.reached is not None:
            loop_of[0].call_soon_threadsafe(stage.reached.set)
            stopped.wait()

    loop_of: list[asyncio.AbstractEventLoop] = []

    @nl.agent(name="plain-agent")
    def agent() -> list[int]:
        found = [step(1), step(2)]
        stop()
        return found

    from tests.replay.lifetimes import first_life, second_life

    async def main() -> list[int]:
        loop_of.append(asyncio.get_running_loop())
        store = QuickStore()
        try:
            await first_life(stage, store, agent)
        finally:
            stopped.set()
        return list(await second_life(store, agent))

    assert run_async(main) == [2, 4]
    assert stage.executed == []


def test_the_key_is_the_same_in_every_life_and_differs_between_calls() -> None:
    stage = Stage()
    keys: list[tuple[str, str]] = []

    @nl.action(name="keyed")
    async def keyed(number: int) -> None:
        keys.append((f"{number}", nl.key()))
        if number == 2:
            await stage.stop_here()

    @nl.agent(name="keys")
    async def agent() -> None:
        await keyed(1)
        await keyed(2)

    twice(stage, agent)
    assert [name for name, _ in keys] == ["1", "2", "2"]
    assert keys[1] == keys[2]
    assert keys[0][1] != keys[1][1]
    assert all(key.isprintable() and len(key) <= 255 for _, key in keys)


def test_the_key_is_for_steps() -> None:
    @nl.agent(name="keyless")
    async def agent() -> str:
        with pytest.raises(nl.NoRun):
            nl.key()
        return "refused"

    assert once(agent) == "refused"


def test_more_threads_than_an_executor_has_do_not_wait_for_each_other() -> None:
    @nl.action(name="threaded")
    def threaded(number: int) -> int:
        return number * 2

    @nl.agent(name="many-threads")
    async def agent() -> list[int]:
        return list(await asyncio.gather(*(asyncio.to_thread(threaded, number) for number in range(100))))

    assert once(agent) == [number * 2 for number in range(100)]


def test_a_plain_agent_maps_plain_steps_and_finds_them_again() -> None:
    stage = Stage()

    @nl.action(name="mapped-plain")
    def double(number: int) -> int:
        return int(stage.did(number * 2))

    @nl.agent(name="plain-mapper")
    def agent() -> list[int]:
        found = nl.sync.map(double, range(40), limit=20)
        if stage.is_second:
            return found
        raise ValueError("not yet")

    store = QuickStore()

    async def main() -> list[int]:
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed, match="Fix the cause, then `ninelives retry run`"):
                await rt.run(agent, id="run")
            assert sorted(stage.executed) == [number * 2 for number in range(40)]
            stage.is_second = True
            stage.executed.clear()
            await (await rt.get("run")).retry()
            return list(await rt.run(agent, id="run"))

    assert run_async(main) == [number * 2 for number in range(40)]
    assert stage.executed == []
