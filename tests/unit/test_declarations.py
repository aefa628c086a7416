"""Declarations: what is wrong is refused when it is declared, with what to do; methods keep their `raw`."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, once, run_async


class Desk:
    """Steps of every kind of method."""

    rate = 2

    @nl.action
    async def price(self, cents: int) -> int:
        """Tell the price."""
        return cents * self.rate

    @nl.action
    @classmethod
    async def of_class(cls, cents: int) -> int:
        return cents * cls.rate

    @classmethod
    @nl.action
    async def under_class(cls, cents: int) -> int:
        return cents * cls.rate

    @nl.action
    @staticmethod
    async def static(cents: int) -> int:
        return cents + 1

    @nl.action
    def plain(self, cents: int) -> int:
        return cents * self.rate


async def _raw() -> list[Any]:
    desk: Any = Desk()
    return [
        await desk.price.raw(1),
        await Desk.price.raw(desk, 1),
        await desk.of_class.raw(1),
        await desk.static.raw(1),
        desk.plain.raw(1),
    ]


def test_raw_of_a_method_is_bound_as_the_method_is() -> None:
    async def main() -> list[Any]:
        async with nl.Runtime(QuickStore()):
            return await _raw()

    assert run_async(main) == [2, 2, 2, 2, 2]


def test_methods_of_every_kind_are_steps_and_ordinary_functions() -> None:
    @nl.agent(name="desk")
    async def agent() -> list[int]:
        desk: Any = Desk()
        return [
            await desk.price(1),
            await desk.of_class(1),
            await desk.under_class(1),
            await desk.static(1),
            await asyncio.to_thread(desk.plain, 1),
        ]

    assert once(agent) == [2, 2, 2, 2, 2]
    desk: Any = Desk()
    assert asyncio.run(desk.price(1)) == 2
    assert desk.price == desk.price
    assert len({desk.price, desk.price}) == 1
    assert desk.price.__name__ == "price"
    assert desk.price.__doc__ == "Tell the price."
    assert asyncio.iscoroutinefunction(desk.price) or inspect.iscoroutinefunction(desk.price)
    assert not inspect.iscoroutinefunction(desk.plain)


def _yields_async() -> Any:
    @nl.decision
    async def tokens() -> AsyncIterator[str]:
        yield "a"

    return tokens


def _yields() -> Any:
    @nl.action
    def tokens() -> Iterator[str]:
        yield "a"

    return tokens


async def _ask(question: str) -> str:
    return question


WRONG: list[tuple[Callable[[], Any], str]] = [
    (_yields_async, r"yields.*nl\.emit"),
    (_yields, r"yields.*nl\.emit"),
    (lambda: nl.agent(_generator), r"yields"),
    (lambda: nl.decision(lambda question: question), r"no name of its own.*name="),
    (lambda: nl.action(partial(_ask, "x")), r"no name of its own.*name="),
    (lambda: nl.action("ask"), r"cannot be called"),  # type: ignore[call-overload]
    (lambda: nl.decision(approval=True)(_ask), r"approval= is for actions.*nl\.action"),  # type: ignore[call-overload]
    (lambda: nl.decision(key="x")(_ask), r"key= is for actions"),  # type: ignore[call-overload]
    (lambda: nl.action(retries=3)(_ask), r"no option retries=.*retry"),  # type: ignore[call-overload]
    (lambda: nl.action(key="ask:{nobody}")(_ask), r"unknown \{nobody\}.*\{question\}"),
    (lambda: nl.agent(pin="rack 7")(_ask), r"pin='rack 7'.*host"),
    (lambda: nl.agent(durability="fast")(_ask), r"strict, pipelined"),
    (lambda: nl.action(timeout=0)(_ask), r"timeout=0"),
    (lambda: nl.action(ignore=["nothing"])(_ask), r"nothing"),
]


async def _generator() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(("declare", "said"), WRONG)
def test_a_wrong_declaration_is_refused_with_a_remedy(declare: Callable[[], Any], said: str) -> None:
    with pytest.raises(nl.UsageError, match=said):
        declare()


def test_a_nameless_function_with_a_name_is_a_step() -> None:
    double = nl.action(lambda value: 2 * value, name="double")

    @nl.agent(name="doubling")
    async def agent() -> int:
        return int(await asyncio.to_thread(double, 21))

    assert once(agent) == 42


def test_a_pinned_agent_s_runs_belong_to_the_host_that_started_them() -> None:
    @nl.agent(name="pinned", pin="host")
    async def agent() -> str:
        return "here"

    async def main() -> tuple[str | None, Any]:
        async with nl.Runtime(store := QuickStore()) as rt:
            run = await rt.start(agent)
            row = store.read_run(run.id)
            assert row is not None
            return row.pin, await rt.run(agent, id=run.id)

    assert run_async(main) == (socket.gethostname(), "here")
