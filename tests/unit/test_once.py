"""Non-resumable actions: started once, and never again unless it is proved that nothing was done."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind
from ninelives.runtime import ProcessOptions
from ninelives.stores.clock import SystemClock
from tests.replay.lifetimes import (
    QuickStore,
    Stage,
    first_life,
    once,
    prove_gone,
    run_async,
    second_life,
    twice,
)

QUICK = nl.Retry(attempts=3, base_seconds=0.0001, max_seconds=0.001)
DEADLINE_SECONDS = 30.0


def kinds(store: QuickStore, run: str = "run") -> list[Kind]:
    """Return what was recorded of a run's action, in order."""
    records = store.load_journal(run, since=0).records
    return [record.kind for record in records if record.step.startswith("#pay#")]


async def until_escalated(rt: nl.Runtime, run: str = "run") -> Any:
    """Work until the run waits for a person; returns the item."""
    working = asyncio.create_task(rt.work())
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                items = [item for item in await rt.inbox() if item.run == run]
                if items and (await (await rt.get(run)).status()) == "escalated":
                    return items[0]
                await asyncio.sleep(0.01)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def test_the_intent_is_durable_before_the_body_begins() -> None:
    store, seen = QuickStore(), []

    @nl.action(name="pay", resumable=False)
    async def pay(cents: int) -> int:
        seen.extend(kinds(store))
        return cents

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay(5)

    assert once(agent, store=store, id="run") == 5
    assert seen == [Kind.INTENT]
    assert kinds(store) == [Kind.INTENT, Kind.RESULT]


class Downgraded(QuickStore):
    """A store that is found to be lossy by the connection that a record of that kind was written on."""

    def __init__(self, kind: Kind | None) -> None:
        super().__init__()
        self.why: str | None = None
        self.kind = kind

    @property
    def lossy(self) -> str | None:
        """Say so once it is known."""
        return self.why

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Write, and find out."""
        verdicts = super().commit(batch)
        if any(record.kind is self.kind for one in batch for record in one.records):
            self.why = "it keeps no log"
        return verdicts


@pytest.mark.parametrize("key", [None, lambda cents: f"order-{cents}"])
def test_what_was_to_start_does_not_begin_when_its_intent_went_to_a_server_that_may_forget_it(
    key: Any,
) -> None:
    store, stage = Downgraded(Kind.INTENT), Stage()

    @nl.action(name="pay", resumable=False, key=key)
    async def pay(cents: int) -> int:
        return int(stage.did(cents))

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay(5)

    with pytest.raises(nl.RunFailed, match="may lose its intent: it keeps no log"):
        once(agent, store=store, id="run")
    assert stage.executed == []
    assert kinds(store) == [Kind.INTENT, Kind.VOIDED]
    store.why = store.kind = None  # mended
    assert once(agent, store=store, id="again") == 5  # its key is free

    async def retried() -> object:
        async with nl.Runtime(store) as rt:
            run = await rt.get("run")
            await run.retry()
            return await rt.run(agent, id="run")

    assert run_async(retried) == 5
    assert stage.executed == ([5, 5] if key is None else [5])


def test_what_was_proved_not_done_is_not_started_again_on_a_server_that_may_forget_it() -> None:
    store, stage = Downgraded(Kind.VOIDED), Stage()

    @nl.action(name="pay", resumable=False, retry=QUICK)
    async def pay(cents: int) -> int:
        stage.did(cents)
        raise nl.NotDone("the till is closed")

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay(5)

    with pytest.raises(nl.RunFailed, match="may lose its intent"):
        once(agent, store=store, id="run")
    assert stage.executed == [5]
    assert kinds(store) == [Kind.INTENT, Kind.VOIDED]


def test_a_recorded_result_is_found_again() -> None:
    stage = Stage()

    @nl.action(name="pay", resumable=False)
    async def pay(cents: int) -> int:
        return int(stage.did(cents))

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="payer")
    async def agent() -> int:
        paid = await pay(5)
        await stop()
        return paid

    assert twice(stage, agent) == 5
    assert stage.executed == []


@pytest.mark.parametrize("happened", [True, False])
def test_what_was_in_flight_is_verified(happened: bool) -> None:
    stage, asked = Stage(), []

    async def look(cents: int, key: str) -> object:
        asked.append((cents, key))
        return nl.Happened(cents * 2) if happened else nl.NotHappened()

    @nl.action(name="pay", resumable=False, verify=look)
    async def pay(cents: int) -> int:
        stage.did(nl.key())
        await stage.stop_here()
        return cents

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay(5)

    store = QuickStore()

    async def main() -> object:
        await first_life(stage, store, agent)
        prove_gone(store)
        return await second_life(store, agent)

    assert run_async(main) == (10 if happened else 5)
    assert len(stage.executed) == (0 if happened else 1)
    assert {key for _, key in asked} == {"nl:run:0::pay:0"}
    end = [Kind.RESULT] if happened else [Kind.VOIDED, Kind.INTENT, Kind.RESULT]
    assert kinds(store) == [Kind.INTENT, Kind.DOUBT, *end]


@pytest.mark.parametrize("happened", [True, False])
def test_a_start_is_settled_before_an_approval_that_new_code_wants(happened: bool) -> None:
    stage, store = Stage(), QuickStore()

    async def check(cents: int, key: str) -> object:
        return nl.Happened(cents * 2) if happened else nl.NotHappened()

    async def pay(cents: int) -> int:
        stage.did("paid")
        await stage.stop_here()
        return cents

    action: Any = nl.action(pay, name="pay", resumable=False, verify=check)

    @nl.agent(name="payer")
    async def agent() -> int:
        paid: int = await action(5)
        return paid

    async def main() -> object:
        nonlocal action
        await first_life(stage, store, agent)
        prove_gone(store)
        action = nl.action(pay, name="pay", resumable=False, verify=check, approval=True)
        if happened:
            return await second_life(store, agent)
        async with nl.Runtime(store) as rt:
            await rt.work(until_idle=True)
            (item,) = await rt.inbox()
            await item.deny(by="ann")
        with pytest.raises(nl.RunFailed):
            await second_life(store, agent)
        return None

    assert run_async(main) == (10 if happened else None)
    assert stage.executed == []
    end = Kind.RESULT if happened else Kind.VOIDED
    assert kinds(store)[:3] == [Kind.INTENT, Kind.DOUBT, end]


def test_a_worker_that_left_a_process_which_lives_on_proves_nothing() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="pay", resumable=False, verify=nl.NotHappened, timeout=0.05)
    async def pay() -> int:
        stage.did("paid")
        await stage.stop_here()
        return 5

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    with pytest.raises(nl.RunEscalated):
        twice(stage, agent, store=store)
    assert stage.executed == []
    assert Kind.VOIDED not in kinds(store)


def test_a_proof_that_comes_later_is_not_waited_for_until_the_time_limit() -> None:
    stage, store = Stage(), QuickStore()
    asked: list[int] = []

    async def look() -> object:
        if not asked:
            prove_gone(store)
        asked.append(1)
        return nl.NotHappened()

    @nl.action(name="pay", resumable=False, verify=look, timeout=3600)
    async def pay() -> int:
        await stage.stop_here()
        return 5

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    assert twice(stage, agent, store=store) == 5
    assert len(asked) == 2  # the first was too early to be believed


def test_not_done_is_tried_again_and_recorded_as_voided() -> None:
    tries: list[str] = []

    @nl.action(name="pay", resumable=False, retry=QUICK)
    async def pay() -> str:
        tries.append(nl.key())
        if len(tries) < 3:
            raise nl.NotDone("declined")
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay()

    store = QuickStore()
    assert once(agent, store=store, id="run") == "paid"
    assert kinds(store) == [Kind.INTENT, Kind.VOIDED] * 2 + [Kind.INTENT, Kind.RESULT]
    assert len(set(tries)) == 1


def test_not_done_to_the_end_fails_with_it() -> None:
    tries: list[int] = []

    @nl.action(name="pay", resumable=False, retry=QUICK)
    async def pay() -> str:
        tries.append(1)
        raise nl.NotDone("declined")

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            return await pay()
        except nl.NotDone as error:
            return str(error)

    assert once(agent) == "declined"
    assert len(tries) == 3


def test_any_other_error_is_a_doubt_and_never_tried_again() -> None:
    tries: list[int] = []

    @nl.action(name="pay", resumable=False, retry=QUICK, in_doubt="raise")
    async def pay() -> str:
        tries.append(1)
        raise ConnectionResetError("while the answer was on its way")

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            return await pay()
        except nl.InDoubt as error:
            return str(error)

    said = once(agent)
    assert "may or may not have happened" in said
    assert "ConnectionResetError" in said
    assert tries == [1]


@pytest.mark.parametrize(
    ("answer", "expected", "starts"),
    [("happened", 7, 1), ("not happened", 8, 2), ("fail", "gave it up", 1)],
)
def test_a_person_settles_what_is_unknown(answer: str, expected: object, starts: int) -> None:
    tries: list[int] = []

    @nl.action(name="pay", resumable=False)
    async def pay(order: str) -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("gone")
        return 8

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("order-1")

    async def main() -> object:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            item = await until_escalated(rt)
            assert item.kind is ItemKind.DOUBT
            assert "OSError: gone" in item.asked.what
            assert bytes(item.asked.arguments["order"]) == b'"order-1"'
            if answer == "fail":
                await item.fail(by="ann")
            else:
                result = {"result": 7} if answer == "happened" else {}
                await item.settle(happened=answer == "happened", by="ann", **result)
            await rt.work(until_idle=True)
            try:
                return await run.result(DEADLINE_SECONDS)
            except nl.RunFailed as error:
                return str(error)

    found = run_async(main)
    assert (expected in found) if isinstance(found, str) and isinstance(expected, str) else found == expected
    assert len(tries) == starts


def test_a_result_that_cannot_be_kept_goes_to_a_person() -> None:
    tries: list[int] = []

    @nl.action(name="pay", resumable=False, returns=int)
    async def pay() -> Any:
        tries.append(1)
        return object()

    @nl.agent(name="payer")
    async def agent() -> int:
        return int(await pay())

    async def main() -> object:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            item = await until_escalated(rt)
            assert "it happened, and its result cannot be kept" in item.asked.what
            await item.settle(happened=True, result=3, by="ann")
            await rt.work(until_idle=True)
            return await run.result(DEADLINE_SECONDS)

    assert run_async(main) == 3
    assert tries == [1]


def test_a_body_whose_time_is_over_is_in_doubt() -> None:
    @nl.action(name="pay", resumable=False, timeout=0.05, in_doubt="raise")
    async def pay() -> None:
        await asyncio.sleep(DEADLINE_SECONDS)

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            await pay()
        except nl.InDoubt as error:
            return str(error)
        return "done"

    assert "not done within 0.05 s" in once(agent)


CHILDREN: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def done(tmp_path: Path) -> Iterator[Path]:
    """Yield a file that, once it is there, ends the child processes of a test."""
    path = tmp_path / "done"
    yield path
    path.touch()
    while CHILDREN:
        CHILDREN.pop().wait(DEADLINE_SECONDS)


def begin(done: Path) -> subprocess.Popen[bytes]:
    """Begin a child process that waits for the file."""
    CHILDREN.append(subprocess.Popen(["sh", "-c", f"while [ ! -e {done} ]; do sleep 0.01; done"]))
    return CHILDREN[-1]


async def hand_over(how: str, work: Callable[[], str], done: Path) -> str:
    """Do something in another thread, task or process, as bodies do."""
    if how == "to_thread":
        return await asyncio.to_thread(work)
    if how == "executor":
        return await asyncio.get_running_loop().run_in_executor(None, work)
    if how == "shield":
        return await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(work)))
    child = begin(done)
    while child.poll() is None:  # noqa: ASYNC110 (nothing else says so)
        await asyncio.sleep(0.01)
    return "late, and done"


HANDED_OVER = pytest.mark.parametrize("how", ["to_thread", "executor", "shield", "process"])


@HANDED_OVER
def test_a_body_that_was_broken_off_is_not_over_while_its_process_lives(how: str, done: Path) -> None:
    go_on, store, starts = threading.Event(), QuickStore(), list[int]()

    @nl.action(name="pay", resumable=False, timeout=0.05, verify=nl.NotHappened)
    async def pay() -> str:
        starts.append(1)
        return await hand_over(how, lambda: str(go_on.wait(DEADLINE_SECONDS)), done)

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            try:
                with pytest.raises(nl.RunEscalated):
                    await rt.run(agent, id="run")
            finally:
                go_on.set()

    run_async(main)
    assert starts == [1]
    assert Kind.VOIDED not in kinds(store)


@HANDED_OVER
def test_a_body_that_raised_is_over_once_all_that_it_began_is(how: str, done: Path) -> None:
    go_on, store, starts = threading.Event(), QuickStore(), list[int]()
    asked: list[bool] = []

    def look() -> object:
        asked.append(done.exists())
        if not asked[-1]:
            go_on.set()
            done.touch()
            return nl.NotHappened()  # true, and it lands right after
        return nl.Happened("landed")

    @nl.action(name="pay", resumable=False, verify=look)
    async def pay() -> str:
        starts.append(1)
        async with asyncio.timeout(0.05):  # the body's own: it raises by itself
            return await hand_over(how, lambda: str(go_on.wait(DEADLINE_SECONDS)), done)

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay()

    assert once(agent, store=store, id="run") == "landed"
    assert starts == [1]
    assert asked == [False, True]


class SetForward(SystemClock):
    """A clock that somebody sets."""

    set_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock."""
        return super().now_ms() + self.set_ms


@pytest.mark.parametrize("by", ["verify", "a person"])
def test_a_wall_clock_that_is_set_forward_makes_nothing_not_happened(by: str) -> None:
    clock, starts = SetForward(), list[int]()
    store = QuickStore()
    store._clock = clock

    def look() -> object:
        clock.set_ms = 3_600_000
        return nl.NotHappened() if by == "verify" else nl.Unknown()

    @nl.action(name="pay", resumable=False, verify=look, settle_after=0.6)
    async def pay() -> int:
        starts.append(clock.boot_ms())
        if len(starts) == 1:
            raise OSError("gone")
        return 5

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    async def main() -> object:
        async with nl.Runtime(store, process=ProcessOptions(clock=clock)) as rt:
            run = await rt.start(agent, id="run")
            if by == "a person":
                await (await until_escalated(rt)).settle(happened=False, by="ann")
            working = asyncio.create_task(rt.work())
            result = await run.result(DEADLINE_SECONDS)
            working.cancel()
            return result

    assert run_async(main) == 5
    assert starts[1] - starts[0] >= 600


def test_a_plain_body_that_runs_on_is_never_called_not_happened() -> None:
    go_on, asked = threading.Event(), []

    def look() -> object:
        asked.append(1)
        if len(asked) == 2:
            go_on.set()
        return nl.NotHappened()

    @nl.action(name="pay", resumable=False, timeout=0.05, verify=look)
    def pay() -> str:
        go_on.wait(DEADLINE_SECONDS)
        return "late, and done"

    @nl.agent(name="payer")
    def agent() -> str:
        return pay()

    store = QuickStore()
    try:
        said = once(agent, store=store, id="run")
    finally:
        go_on.set()
    assert Kind.VOIDED not in kinds(store)
    assert said == "late, and done"


def test_what_never_comes_to_an_end_is_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ninelives.engine.protected.doubt.MOST_STARTS", 2)
    tries: list[int] = []

    @nl.action(name="pay", resumable=False, verify=nl.NotHappened, in_doubt="raise")
    async def pay() -> None:
        tries.append(1)
        raise OSError("again")

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            await pay()
        except nl.InDoubt as error:
            return str(error)
        return "paid"

    assert "was started 2 times, and never came to an end" in once(agent)
    assert tries == [1, 1]


def test_an_action_inside_a_step_is_refused() -> None:
    @nl.action(name="pay", resumable=False)
    async def pay() -> int:
        return 1

    @nl.action(name="outer")
    async def outer() -> int:
        return await pay()

    @nl.agent(name="payer")
    async def agent() -> int:
        return await outer()

    with pytest.raises(nl.RunFailed, match="called inside step outer"):
        once(agent)


def test_a_cancelled_action_is_finished_and_recorded_first() -> None:
    store, done = QuickStore(), []

    @nl.action(name="pay", resumable=False)
    async def pay() -> int:
        await asyncio.sleep(0.1)
        done.append(1)
        return 1

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            async with nl.timeout(0.01):
                await pay()
        except nl.TimedOut:
            return "timed out"
        return "in time"

    assert once(agent, store=store, id="run") == "timed out"
    assert done == [1]
    assert kinds(store) == [Kind.INTENT, Kind.RESULT, Kind.WITHDRAWN]  # done, and told as cancelled


def test_a_cancelled_action_comes_out_the_same_on_replay() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="pay", resumable=False)
    async def pay() -> int:
        stage.did("paid")
        await asyncio.sleep(0.05)
        return 1

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="payer")
    async def agent() -> str:
        said = "in time"
        try:
            async with nl.timeout(0.01):
                await pay()
        except nl.TimedOut:
            said = "timed out"
        await stop()
        return said

    assert twice(stage, agent, store=store) == "timed out"
    assert stage.executed == []


class Held(QuickStore):
    """A store that holds a log line up until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.lets_go = threading.Event()

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Wait, if it is the line, and write."""
        if any(record.kind is Kind.LOG for one in batch for record in one.records):
            assert self.lets_go.wait(DEADLINE_SECONDS)
        return super().commit(batch)


def test_a_start_that_is_found_again_is_settled_although_its_call_is_cancelled_at_the_barrier() -> None:
    stage, store = Stage(), Held()

    @nl.action(name="pay", resumable=False, verify=lambda: nl.Happened(7))
    async def pay() -> int:
        await stage.stop_here()
        return 8

    @nl.agent(name="payer")
    async def agent() -> str:
        if stage.is_second:
            nl.log.info("it is back")  # not durable yet when the call comes to the barrier
        paying = asyncio.ensure_future(pay())
        if stage.is_second:
            for _ in range(10):
                await asyncio.sleep(0)
            paying.cancel()
        store.lets_go.set()
        await asyncio.wait([paying])
        return "cancelled" if paying.cancelled() else "paid"

    assert twice(stage, agent, store=store) == "cancelled"
    records = store.load_journal("run", since=0).records
    assert [one.kind for one in records if "pay" in one.step][-2:] == [Kind.RESULT, Kind.WITHDRAWN]


def test_without_a_runtime_it_is_an_ordinary_function() -> None:
    @nl.action(resumable=False, key="pay:{order}")
    async def pay(order: str) -> str:
        return order

    @nl.action(resumable=False)
    def give(order: str) -> str:
        return order

    assert asyncio.run(pay("a")) == "a"
    assert give("b") == "b"


def test_two_lives_settle_a_doubt_that_asks_a_person() -> None:
    stage = Stage()

    @nl.action(name="pay", resumable=False, timeout=0.05)
    async def pay() -> int:
        stage.did("paid")
        await stage.stop_here()
        return 1

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    store = QuickStore()

    async def main() -> Any:
        await first_life(stage, store, agent)
        async with nl.Runtime(store) as rt:
            item = await until_escalated(rt)
            assert "stopped" in item.asked.what
        async with nl.Runtime(store) as rt:
            (item,) = await rt.inbox()
            await item.settle(happened=True, result=4, by="ann")
        return await second_life(store, agent)

    assert run_async(main) == 4
    assert stage.executed == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"verify": lambda: None}, "verify= is for actions with resumable=False"),
        ({"in_doubt": "raise"}, "in_doubt= is for"),
        ({"resumable": False, "in_doubt": "shrug"}, "in_doubt='shrug'"),
        ({"identity": "order"}, "identity= is for actions with key="),
        ({"resumable": False, "settle_after": -1}, "settle_after=-1"),
        ({"key": "pay:{other}"}, "unknown {other}"),
        ({"key": 7}, "key=7"),
        ({"key": "pay:{order}", "identity": ("cents",)}, "identity= names 'cents'"),
        ({"resumable": False, "verify": 3}, "verify=3"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(options: dict[str, Any], says: str) -> None:
    def pay(order: str) -> None:
        raise AssertionError

    declare: Any = nl.action
    with pytest.raises(nl.UsageError) as caught:
        declare(**options)(pay)
    assert says in str(caught.value)
