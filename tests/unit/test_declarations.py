"""Declarations: what is wrong is refused when it is declared, with what to do; methods keep their `raw`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import textwrap
import types
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
    (lambda: nl.action(timeout="5")(_ask), r"timeout='5'.*seconds"),  # type: ignore[call-overload]
    (lambda: nl.agent(timeout=True)(_ask), r"timeout=True.*seconds"),
    (lambda: nl.action(int), r"does not say what its parameters are.*of your own"),
    (lambda: nl.action(reads_only=True, resumable=False)(_ask), r"reads_only=True and resumable=False"),
    (lambda: nl.decision(retries=3)(_ask), "There are: aliases, alternatives, breaker, cache, cost, hedge"),  # type: ignore[call-overload]
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


class Caller:
    """An object with an async `__call__`."""

    async def __call__(self, value: int) -> int:
        return 2 * value


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _asynchronously(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


async def _double(value: int) -> int:
    return 2 * value


def _double_plainly(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("options", [{}, {"resumable": False}])
@pytest.mark.parametrize(
    "function",
    [
        Caller(),
        partial(Caller()),
        _plainly(_double),
        _plainly(Caller().__call__),
        _asynchronously(_double_plainly),
        _plainly(_asynchronously(_double_plainly)),
    ],
    ids=["object", "partial", "plain over async", "plain over method", "async over plain", "three"],
)
def test_whatever_gives_something_to_await_is_an_async_step_and_agent(
    function: Callable[..., Any], options: dict[str, Any]
) -> None:
    double = nl.action(function, name="declared-double", **options)
    agent = nl.agent(name=f"declared-{id(function)}")(function)

    @nl.agent(name=f"doubling-{id(function)}-{len(options)}")
    async def doubling() -> int:
        return int(await double(21))

    assert once(doubling) == 42
    assert once(agent, 21) == 42


def _module(name: str, source: str) -> Any:
    module = types.ModuleType(name)
    code = compile(textwrap.dedent(source), f"/of/{name}.py", "exec")
    exec(code, vars(module))
    return module


ONE = """
import ninelives as nl
@nl.action
async def rival() -> str: return __name__
"""


def test_two_steps_of_one_name_are_fine_in_two_runs_and_refused_in_one() -> None:
    left, right = _module("left", ONE), _module("right", ONE)

    @nl.agent(name="rivals")
    async def agent(both: bool) -> list[str]:
        return [await left.rival(), *([await right.rival()] if both else [])]

    assert once(agent, False) == ["left"]
    with pytest.raises(nl.RunFailed) as caught:
        once(agent, True)
    assert isinstance(caught.value.__cause__, nl.DuplicateName)
    assert "two steps are 'rival': /of/left.py:3 and /of/right.py:3" in str(caught.value)


def test_a_module_that_is_loaded_again_has_the_same_steps() -> None:
    first, edited = _module("again", ONE), _module("again", "\n\n" + ONE)

    @nl.agent(name="reloaded")
    async def agent() -> list[str]:
        return [await first.rival(), await edited.rival()]

    assert once(agent) == ["again", "again"]


def test_in_main_the_later_definition_of_an_agent_wins() -> None:
    cell = """
    import ninelives as nl
    @nl.agent
    async def edited_cell() -> int: return {}
    """
    _module("__main__", cell.format(1))
    assert once(_module("__main__", "\n" + cell.format(2)).edited_cell) == 2
    _module("elsewhere", cell.format(3).replace("edited_cell", "kept_cell"))
    with pytest.raises(nl.DuplicateName):
        _module("elsewhere", "\n" + cell.format(4).replace("edited_cell", "kept_cell"))


def test_what_sync_shows_is_what_plain_agents_call() -> None:
    assert sorted(dir(nl.sync)) == sorted(nl.sync.__all__)
