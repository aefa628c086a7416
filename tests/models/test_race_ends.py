"""What a request may leave behind, and odd ends of one: the others go on, and the call ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.core.model.counter import no_steps
from ninelives.engine.context import Frame
from ninelives.models.ways import Ways
from ninelives.testing import Sandbox
from tests.models.series import HttpError


def test_a_request_that_has_failed_emits_nothing_more_and_cancels_nobody() -> None:
    left: list[Any] = []

    async def first() -> str:
        async def pump() -> None:
            await asyncio.sleep(1)
            await nl.emit("late")

        left.append(asyncio.create_task(pump()))
        raise HttpError(503)

    async def second() -> str:
        await asyncio.sleep(2)
        await nl.emit("own")
        return "second"

    step = nl.decision(name="first", alternatives=[second], timeout=60, retry=nl.Retry(attempts=1))(first)

    @nl.agent
    async def streaming() -> Any:
        return await step()

    with Sandbox() as sandbox:
        run = sandbox.start(streaming)
        assert run.result() == "second"
        assert [one.value for one in run.emitted()] == ["own"]


@pytest.mark.parametrize("kind", [GeneratorExit, BaseException, SystemExit, KeyboardInterrupt])
def test_an_odd_end_of_a_request_ends_the_call(kind: type[BaseException]) -> None:
    async def first() -> str:
        raise kind("odd")

    step = cast("Any", nl.decision(name="first", hedge=nl.Hedge(after=1.0))(first)).__ninelives__
    execution: Any = SimpleNamespace(
        done=no_steps(), sealed=None, run=SimpleNamespace(id="run"), has_lease=True
    )
    frame = Frame(cast("Any", SimpleNamespace(id="#first#0")), cast("Any", None))

    async def main() -> BaseException | None:
        try:
            async with asyncio.timeout(5):
                await Ways().ask(execution, step, frame, (first,), (), {})
        except BaseException as caught:
            return caught
        return None

    assert type(asyncio.run(main())) is kind
