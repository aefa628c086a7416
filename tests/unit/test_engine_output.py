"""Output: in order, durable before the result, withdrawn when its attempt came to nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.journal.output import read_output
from ninelives.core.model.run import Kind
from ninelives.engine.agent.output import emit_from_thread
from ninelives.engine.run.output_buffer import FLUSH_BYTES
from ninelives.store import Store
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life, twice

QUICK = nl.Retry(attempts=3, base_seconds=0.0001, max_seconds=0.001)


@dataclass
class Token:
    text: str


def collect(store: Store, run: str = "run", offset: int = 0, type: Any = Any) -> list[nl.Output]:
    """Return the whole output of a run that has ended."""

    async def main() -> list[nl.Output]:
        async with nl.Runtime(store) as rt:
            return [item async for item in (await rt.get(run)).stream(offset, type=type)]

    return run_async(main)


async def recorded(store: Store, run: str = "run") -> None:
    """Wait until something that a step of the current turn has emitted is in the journal."""

    def is_there() -> bool:
        records = store.load_journal(run).records
        return any(record.kind is Kind.OUTPUT and read_output(record).a for record in records)

    while not is_there():  # noqa: ASYNC110 (a store has no event)
        await asyncio.sleep(0.005)


def standing(items: list[nl.Output]) -> list[Any]:
    """Return the values that were not withdrawn."""
    left: list[nl.Output] = []
    for item in items:
        if item.is_retraction:
            left = [one for one in left if (one.turn, one.step) != (item.turn, item.step)]
        else:
            left.append(item)
    return [item.value for item in left]


def test_without_a_runtime_nothing_happens() -> None:
    asyncio.run(nl.emit("hello"))
    emit_from_thread("hello")


def test_output_comes_in_order_with_its_step_and_attempt() -> None:
    store = QuickStore()

    @nl.decision
    async def answer() -> str:
        for word in ("a", "b"):
            await nl.emit(word)
        return "ab"

    @nl.agent(name="talker")
    async def agent() -> str:
        await nl.emit("before")
        said = await answer()
        await nl.emit("after")
        return said

    once(agent, store=store, id="run")
    items = collect(store)
    assert [item.value for item in items] == ["before", "a", "b", "after"]
    assert [(item.step.rpartition(".")[2], item.attempt) for item in items] == [
        ("", 0),
        ("answer[0]", 1),
        ("answer[0]", 1),
        ("", 0),
    ]
    offsets = [item.offset for item in items]
    assert offsets == sorted(set(offsets))
    for number, item in enumerate(items, 1):
        assert [one.value for one in collect(store, offset=item.offset)] == [
            one.value for one in items[number:]
        ]


def test_what_a_step_emits_is_recorded_before_its_result_and_together() -> None:
    store = QuickStore()

    @nl.action
    async def talk() -> int:
        for number in range(100):
            await nl.emit(number)
        return 100

    @nl.agent(name="batches")
    async def agent() -> int:
        return await talk()

    once(agent, store=store, id="run")
    kinds = [record.kind for record in store.load_journal("run", since=0).records]
    assert kinds.index(Kind.OUTPUT) < kinds.index(Kind.RESULT)
    assert kinds.count(Kind.OUTPUT) < 10
    assert [item.value for item in collect(store)] == list(range(100))


def test_the_next_life_withdraws_what_a_dead_attempt_emitted() -> None:
    stage, store = Stage(), QuickStore()

    @nl.decision
    async def answer() -> str:
        await nl.emit("half" if not stage.is_second else "whole")
        await recorded(store)
        await stage.stop_here()
        await nl.emit("end")
        return "done"

    @nl.agent(name="reborn")
    async def agent() -> str:
        await nl.emit("hello")
        said = await answer()
        await nl.emit("bye")
        return said

    assert twice(stage, agent, store=store) == "done"
    items = collect(store)
    assert [item.value for item in items] == ["hello", "half", None, "whole", "end", "bye"]
    assert [item.is_retraction for item in items] == [False, False, True, False, False, False]
    assert [item.attempt for item in items] == [0, 1, 2, 2, 2, 0]
    assert standing(items) == ["hello", "whole", "end", "bye"]


def test_what_stands_is_not_withdrawn_by_a_later_life() -> None:
    stage, store = Stage(), QuickStore()

    @nl.decision
    async def answer() -> str:
        await nl.emit("word")
        return "word"

    @nl.action
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="settled")
    async def agent() -> str:
        said = await answer()
        await stop()
        return said

    twice(stage, agent, store=store)
    assert [(item.value, item.is_retraction) for item in collect(store)] == [("word", False)]


def test_an_attempt_that_fails_is_withdrawn_before_the_next() -> None:
    store, tries = QuickStore(), [0]

    @nl.decision(retry=QUICK)
    async def answer() -> str:
        tries[0] += 1
        await nl.emit(f"try {tries[0]}")
        if tries[0] == 1:
            await recorded(store)
            raise nl.Transient("cut off")
        return "done"

    @nl.agent(name="stubborn")
    async def agent() -> str:
        return await answer()

    once(agent, store=store, id="run")
    assert [item.value for item in collect(store)] == ["try 1", None, "try 2"]


def test_a_failed_or_withdrawn_step_leaves_nothing_standing() -> None:
    store = QuickStore()

    @nl.decision(raises=[ValueError], retry=nl.Retry(attempts=1))
    async def fails() -> str:
        await nl.emit("half")
        await recorded(store)
        raise ValueError("no")

    @nl.decision
    async def hangs() -> str:
        await nl.emit("quarter")
        await asyncio.Event().wait()
        return ""

    @nl.agent(name="failing")
    async def agent() -> str:
        try:
            await fails()
        except ValueError:
            await nl.emit("sorry")
        try:
            async with nl.timeout(0.1):
                await hangs()
        except nl.TimedOut:
            await nl.emit("too late")
        return "ok"

    once(agent, store=store, id="run")
    items = collect(store)
    assert standing(items) == ["sorry", "too late"]
    said = [item.value for item in items if item.value is not None]
    assert said == ["half", "sorry", "quarter", "too late"]


def test_a_flood_is_recorded_in_pieces_and_whole() -> None:
    store = QuickStore()

    @nl.action
    async def flood() -> int:
        for number in range(40):
            await nl.emit({"number": number, "pad": "x" * (FLUSH_BYTES // 4)})
        await nl.emit("y" * 3 * FLUSH_BYTES)
        return 40

    @nl.agent(name="flooding")
    async def agent() -> int:
        return await flood()

    once(agent, store=store, id="run")
    values = [item.value for item in collect(store)]
    assert [value["number"] for value in values[:-1]] == list(range(40))
    assert values[-1] == "y" * 3 * FLUSH_BYTES


def test_plain_code_emits_too() -> None:
    store = QuickStore()

    @nl.action
    def talk() -> int:
        for number in range(5):
            emit_from_thread(number)
        return 5

    @nl.agent(name="plain")
    def agent() -> int:
        emit_from_thread("first")
        talk()
        emit_from_thread("last")
        return 0

    once(agent, store=store, id="run")
    assert [item.value for item in collect(store)] == ["first", 0, 1, 2, 3, 4, "last"]


def test_typed_values_come_back_as_asked() -> None:
    store = QuickStore()

    @nl.agent(name="typed")
    async def agent() -> None:
        await nl.emit(Token("a"))

    once(agent, store=store, id="run")
    assert [item.value for item in collect(store)] == [{"text": "a"}]
    assert [item.value for item in collect(store, type=Token)] == [Token("a")]


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    @nl.action
    async def talk() -> None:
        await nl.emit({"deep": [object()]})

    @nl.agent(name="bad")
    async def agent() -> None:
        await talk()

    with pytest.raises(nl.RunFailed, match=r"\$\.deep\[0\]"):
        once(agent, id="run")


def test_output_goes_on_over_turns_and_is_withdrawn_in_its_own_turn_only() -> None:
    stage, store = Stage(), QuickStore()

    @nl.decision
    async def answer(number: int) -> str:
        await nl.emit(number)
        if number == 1:
            await recorded(store)
            await stage.stop_here()
        return "x"

    @nl.agent(name="turning")
    async def agent(number: int = 0) -> Any:
        await answer(number)
        return nl.next_turn(number + 1) if number < 2 else number

    twice(stage, agent, store=store)
    items = collect(store)
    assert [(item.turn, item.value) for item in items] == [(0, 0), (1, 1), (1, None), (1, 1), (2, 2)]
    assert standing(items) == [0, 1, 2]


def test_a_stream_is_live_and_ends_with_the_run() -> None:
    store, more = QuickStore(), asyncio.Event()

    @nl.decision
    async def answer() -> str:
        await nl.emit("a")
        await more.wait()
        await nl.emit("b")
        return "ab"

    @nl.agent(name="live")
    async def agent() -> str:
        return await answer()

    async def main() -> list[Any]:
        seen = []
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            working = asyncio.create_task(rt.work(until_idle=True))
            async for item in run.stream():
                seen.append(item.value)
                more.set()  # not before the first item was seen
            await working
        return seen

    assert run_async(main) == ["a", "b"]


def test_a_worker_that_lost_the_run_shows_nothing_more() -> None:
    stage, store = Stage(), QuickStore()

    @nl.decision
    async def answer() -> str:
        if not stage.is_second:
            try:
                await stage.stop_here()
            finally:
                await nl.emit("from the dead")
        await nl.emit("alive")
        return "done"

    @nl.agent(name="haunted")
    async def agent() -> str:
        return await answer()

    async def main() -> None:
        await first_life(stage, store, agent)
        await second_life(store, agent)

    run_async(main)
    assert [item.value for item in collect(store)] == ["alive"]


def test_a_bad_offset_and_an_unknown_run_are_refused() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            handle = nl.Run(rt, "nobody")
            with pytest.raises(nl.UnknownRun):
                await anext(handle.stream())
            with pytest.raises(nl.UsageError, match="offset"):
                await anext(handle.stream(-1))

    run_async(main)


def test_plain_code_reads_a_stream() -> None:
    @nl.agent(name="read plainly")
    async def agent() -> None:
        await nl.emit(1)
        await nl.emit(2)

    with nl.Runtime("memory:").sync() as rt:
        run = rt.start(agent)
        rt.work(until_idle=True)
        assert [item.value for item in run.stream()] == [1, 2]
