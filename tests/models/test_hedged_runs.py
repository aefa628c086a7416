"""Runs whose model calls have several ways: what is recorded, emitted, shown, counted; what replay asks."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.journal.replay import StepBody, read_body
from ninelives.core.model.counter import no_steps
from ninelives.core.model.run import Kind
from ninelives.core.model_calls.answered import Answered
from ninelives.engine.context import Frame
from ninelives.models.ways import Ways
from ninelives.ops.check import Fit
from ninelives.testing import Sandbox
from ninelives.views import records_text
from tests.edits.lives import rehearsed
from tests.models.series import HttpError
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async

AT_ONCE = nl.Hedge(after=0.05, budget=1.0)


class Model:
    """A model with several ways; each answers after its time, or fails."""

    def __init__(self, **ways: float | Exception) -> None:
        self.ways, self.requests = ways, list[tuple[str, str]]()

    def way(self, name: str) -> Any:
        """Return one way to ask."""

        async def ask(question: str) -> str:
            self.requests.append((name, nl.key()))
            found = self.ways[name]
            if isinstance(found, Exception):
                raise found
            await asyncio.sleep(found)
            return f"{name}: {question}"

        ask.__qualname__ = name
        return ask


def bodies(store: Any, run: str, kind: Kind = Kind.RESULT) -> list[StepBody]:
    """Return the bodies of a run's step records of a kind."""
    return [read_body(one) for one in store.load_journal(run).records if one.kind is kind and one.step]


def test_the_outcome_says_who_answered_and_replay_asks_nobody() -> None:
    model, stage, store = Model(slow=60.0, quick=0.01), Stage(), QuickStore()
    first = nl.decision(name="choose", alternatives=[model.way("quick")], hedge=AT_ONCE)(model.way("slow"))

    @nl.agent
    async def asks_twice() -> list[str]:
        answers = [await first("one"), await first("two")]
        await stage.stop_here()
        return answers

    async def main() -> Any:
        await first_life(stage, store, asks_twice)
        asked = list(model.requests)
        async with nl.Runtime(store) as rt:
            value = await rt.run(asks_twice, id="run")
            handle = await rt.get("run")
            return asked, value, await handle.history()

    asked, value, history = run_async(main)
    assert value == ["quick: one", "quick: two"]
    assert model.requests == asked, "replay asks nobody"
    assert [name for name, _ in asked] == ["slow", "quick"] * 2
    assert asked[0][1] == asked[1][1] != asked[2][1], "the key is that of the step, in every way"
    for body in bodies(store, "run"):
        assert body.m is not None
        assert (body.m.by, body.m.ways, body.m.lost, body.m.failed) == ("quick", 2, 1, ())
        assert 50 <= (body.m.hedged_ms or 0) < 5_000
    said = [one.answered for one in history if one.answered]
    assert len(said) == 2
    assert said[0].startswith("by quick, 2 requests, a second one after ")
    lines = records_text.lines(store.load_journal("run").records)
    assert any("(by quick, 2 requests" in records_text.with_verdict(line) for line in lines)


def test_settings_may_change_between_two_lives() -> None:
    model, stage, store = Model(a=0.0, b=0.0), Stage(), QuickStore()

    def declare(**options: Any) -> Any:
        step = nl.decision(name="choose", **options)(model.way("a"))

        @nl.agent(name="changing")
        async def agent() -> str:
            answer = await step("one")
            await stage.stop_here()
            return cast("str", answer + await step("two"))

        return agent

    async def second(agent: Any) -> Any:
        async with nl.Runtime(store) as rt:
            return await rt.run(agent, id="run")

    run_async(lambda: first_life(stage, store, declare(hedge=AT_ONCE, alternatives=[model.way("b")])))
    assert run_async(lambda: second(declare())) == "a: onea: two"
    assert len(model.requests) == 2


def test_a_rehearsal_with_new_code_asks_nobody() -> None:
    model, stage, store = Model(a=0.0, b=0.0), Stage(), QuickStore()
    step = nl.decision(name="choose", alternatives=[model.way("b")], hedge=AT_ONCE)(model.way("a"))

    @nl.agent
    async def agent() -> Any:
        answer = await step("one")
        await stage.stop_here()
        return answer + await step("two")

    run_async(lambda: first_life(stage, store, agent))
    row = store.read_run("run")
    assert row is not None
    assert rehearsed(store, row).fit is Fit.FITS
    assert len(model.requests) == 1


def test_a_journal_without_the_field_reads_as_before_and_one_with_it_by_older_code() -> None:
    written = msgspec.json.encode(StepBody(f="00", m=Answered(by="b", ways=2)))
    assert msgspec.json.decode(b'{"f":"00"}', type=StepBody).m is None

    class Older(msgspec.Struct, frozen=True):
        f: str = ""

    assert msgspec.json.decode(written, type=Older).f == "00"


def test_items_of_the_first_to_emit_are_emitted_and_no_others() -> None:
    with Sandbox() as sandbox:

        def streams(name: str, first: float, answers: float) -> Any:
            async def ask() -> str:
                try:
                    await asyncio.sleep(first)
                    await nl.emit(f"{name} begins")
                    await asyncio.sleep(answers)
                    await nl.emit(f"{name} ends")
                    return name
                finally:
                    await nl.emit(f"{name} cleans up")

            ask.__qualname__ = name
            return ask

        # The second would answer first, but the first has begun to stream by then.
        late = nl.decision(name="late", alternatives=[streams("b", 0.5, 0.1)], hedge=AT_ONCE)(
            streams("a", 0.3, 60.0)
        )
        # The second begins to stream while the first is silent.
        silent = nl.decision(name="silent", alternatives=[streams("d", 0.1, 0.1)], hedge=AT_ONCE)(
            streams("c", 60.0, 0.1)
        )

        # It has begun to stream before a second request would be sent: then none is.
        early = nl.decision(name="early", alternatives=[streams("f", 0.0, 0.0)], hedge=AT_ONCE)(
            streams("e", 0.01, 60.0)
        )

        @nl.agent
        async def streaming() -> list[str]:
            return [await late(), await silent(), await early()]

        run = sandbox.start(streaming)
        assert run.result() == ["a", "d", "e"]
        requests = [body.m.ways for body in bodies(sandbox.store, run.id) if body.m is not None]
        assert requests == [2, 2, 1]
        found = [item.value for item in run.emitted()]
        assert found == [
            "a begins",
            "a ends",
            "a cleans up",
            "d begins",
            "d ends",
            "d cleans up",
            "e begins",
            "e ends",
            "e cleans up",
        ]


def test_what_a_failed_way_emitted_is_retracted_before_the_next_is_asked() -> None:
    with Sandbox() as sandbox:

        async def breaks() -> str:
            await nl.emit("half of it")
            await asyncio.sleep(1)  # long enough to be recorded
            raise HttpError(500)

        async def whole() -> str:
            await nl.emit("all of it")
            return "whole"

        step = nl.decision(alternatives=[whole])(breaks)

        @nl.agent
        async def streaming() -> str:
            return await step()

        run = sandbox.start(streaming)
        assert run.result() == "whole"
        items = run.emitted()
        assert [one.value for one in items if not one.is_retraction] == ["half of it", "all of it"]
        assert [one.is_retraction for one in items] == [False, True, False]


def test_retries_are_around_all_ways_and_the_failures_are_recorded() -> None:
    with Sandbox() as sandbox:
        model = Model(a=HttpError(503), b=HttpError(429))
        step = nl.decision(alternatives=[model.way("b")], retry=nl.Retry(attempts=2))(model.way("a"))

        @nl.agent
        async def fails() -> Any:
            return await step("one")

        with pytest.raises(nl.RunFailed):
            sandbox.run(fails, id="run")
        assert [name for name, _ in model.requests] == ["a", "b", "a", "b"]
        (body,) = bodies(sandbox.store, "run", Kind.FAILURE)
        assert body.m is not None
        assert (body.m.by, body.m.ways, len(body.m.failed)) == ("", 4, 4)
        assert body.m.failed[:2] == ("a: HttpError: HTTP 503", "b: HttpError: HTTP 429")


def test_a_way_that_says_retry_after_is_asked_last_until_then() -> None:
    limited = HttpError(429)
    limited.headers = {"retry-after": "60"}  # type: ignore[attr-defined]
    with Sandbox() as sandbox:
        model = Model(a=limited, b=0.0)
        step = nl.decision(name="choose", alternatives=[model.way("b")])(model.way("a"))

        @nl.agent
        async def asks() -> list[str]:
            return [await step(word) for word in ("one", "two", "three")]

        assert sandbox.run(asks, id="run") == ["b: one", "b: two", "b: three"]
        assert [name for name, _ in model.requests] == ["a", "b", "b", "b"]
        # It is not left out: if no other way answers, its error says when to try again.
        model.ways["b"] = HttpError(503)
        model.ways["a"] = 0.0
        assert sandbox.run(asks, id="other") == ["a: one", "a: two", "a: three"]


def test_plain_functions_fall_back_one_after_the_other() -> None:
    asked: list[str] = []

    def down(question: str) -> str:
        asked.append("down")
        raise HttpError(500)

    def up(question: str) -> str:
        asked.append("up")
        return question

    step = nl.decision(alternatives=[up])(down)

    @nl.agent
    def plain() -> str:
        return step("one") + step("two")

    with Sandbox() as sandbox:
        assert sandbox.run(plain) == "onetwo"
    assert asked == ["down", "up"] * 2


def test_a_step_on_another_loop_is_hedged_there() -> None:
    model = Model(slow=60.0, quick=0.01)
    step = nl.decision(alternatives=[model.way("quick")], hedge=AT_ONCE)(model.way("slow"))

    @nl.agent
    def with_its_own_loop() -> str:
        return cast("str", asyncio.run(step("one")))

    async def main() -> Any:
        async with nl.Runtime(QuickStore()) as rt:
            return await rt.run(with_its_own_loop, id="run")

    assert run_async(main) == "quick: one"


def test_outside_a_run_and_inside_a_step_it_is_an_ordinary_function() -> None:
    model = Model(a=0.0, b=0.0)
    step = nl.decision(alternatives=[model.way("b")], hedge=AT_ONCE)(model.way("a"))

    @nl.action
    async def outer() -> Any:
        return await step("inside")

    @nl.agent
    async def agent() -> Any:
        return await outer()

    with Sandbox() as sandbox:
        assert sandbox.run(agent) == "a: inside"


def test_requests_hedges_and_fallbacks_are_counted() -> None:
    model = Model(slow=60.0, quick=0.01, down=HttpError(500))
    hedged = nl.decision(name="hedged", alternatives=[model.way("quick")], hedge=AT_ONCE)(model.way("slow"))
    falls = nl.decision(name="falls", alternatives=[model.way("quick")])(model.way("down"))
    poor = nl.decision(name="poor", hedge=nl.Hedge(after=0.01, budget=0.05))(model.way("quick"))

    @nl.agent
    async def counted() -> None:
        await hedged("one")
        await falls("one")
        await poor("one")

    store = QuickStore()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.run(counted, id="run")

    run_async(main)
    found = {
        (one.name, one.labels.get("outcome", "")): one.value
        for one in store.read_counters()
        if one.labels.get("agent") == counted.__ninelives__.name  # type: ignore[attr-defined]
    }
    assert found["model_requests", ""] == 5
    assert found["hedges", "won"] == 1
    assert found["hedges", "refused"] == 1
    assert found["fallbacks", ""] == 1


def test_a_step_that_declares_a_hedge_costs_little_when_nothing_is_hedged() -> None:
    async def ask(number: int) -> int:
        await asyncio.sleep(0)
        return number

    step: Any = nl.decision(hedge=nl.Hedge(), breaker=nl.Breaker(slow="8x"), alternatives=[ask])(ask)
    declared, ways = step.__ninelives__, Ways()
    execution: Any = SimpleNamespace(
        done=no_steps(), sealed=None, run=SimpleNamespace(id="run"), has_lease=True
    )

    async def main() -> float:
        position: Any = SimpleNamespace(id="#ask#0")
        spent = []
        for _ in range(60):
            began = time.thread_time()
            for number in range(50):
                frame = Frame(position, cast("Any", None))
                await ways.ask(execution, declared, frame, (ask, ask), (number,), {})
            spent.append((time.thread_time() - began) / 50)
        return min(spent) * 1e6

    assert asyncio.run(main()) <= 50, "microseconds of this thread per call"
