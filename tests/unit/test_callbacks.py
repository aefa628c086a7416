"""Functions of the user's beside bodies: whatever one raises is an error of its run, and others go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async
from tests.unit.test_once import DEADLINE_SECONDS, until_escalated

RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit("cannot reach the bank"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
}
EVERY_KIND = pytest.mark.parametrize("kind", RAISED)
PLAIN_OR_ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


def raiser(kind: str, *, is_async: bool = False) -> Callable[..., Any]:
    """Return a function that raises."""

    def plain(*_: object, **__: object) -> Any:
        error = RAISED[kind]()
        raise error

    async def awaited(*_: object, **__: object) -> Any:
        error = RAISED[kind]()
        raise error

    return awaited if is_async else plain


@nl.agent(name="callbacks.other")
async def other() -> str:
    """Be another run of the same worker."""
    return "done"


@EVERY_KIND
@PLAIN_OR_ASYNC
def test_whatever_verify_raises_is_a_failed_probe(kind: str, is_async: bool) -> None:
    @nl.action(name="pay", resumable=False, verify=raiser(kind, is_async=is_async))
    async def pay() -> int:
        raise ConnectionError("reset")

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay()

    async def main() -> tuple[str, str]:
        async with nl.Runtime(QuickStore()) as rt:
            await rt.start(agent, id="run")
            item = await until_escalated(rt)
            return item.asked.evidence["verify"], await rt.run(other)

    said, others = run_async(main)
    assert kind in said
    assert others == "done"


@EVERY_KIND
@PLAIN_OR_ASYNC
def test_whatever_on_stale_raises_is_the_runs_error(kind: str, is_async: bool) -> None:
    said = _stale(lambda: False, raiser(kind, is_async=is_async))
    assert kind in said


@EVERY_KIND
@PLAIN_OR_ASYNC
def test_a_check_that_raises_anything_says_that_the_resource_is_stale(kind: str, is_async: bool) -> None:
    assert kind in _stale(raiser(kind, is_async=is_async), None)


def _stale(check: Callable[[], Any], on_stale: Callable[..., Any] | None) -> str:
    """Return what becomes of a run whose resource is checked on its way back."""
    stage, store = Stage(), QuickStore()

    @nl.action(name="work")
    async def work() -> None:
        await stage.stop_here()

    @nl.agent(name="holder", on_stale=on_stale)
    async def agent() -> str:
        nl.hold(nl.Custom("thing", check))
        await work()
        return "went on"

    async def main() -> str:
        await first_life(stage, store, agent)
        async with nl.Runtime(store) as rt:
            said = (await until_escalated(rt)).asked.what
            assert await rt.run(other) == "done"
            return str(said)

    return run_async(main)


@EVERY_KIND
@pytest.mark.parametrize("where", ["key", "approval"])
def test_whatever_a_key_or_a_predicate_raises_is_the_runs_error(kind: str, where: str) -> None:
    options: dict[str, Any] = {where: raiser(kind)}

    @nl.action(name="pay", **options)
    async def pay(order: str) -> int:
        return 1

    @nl.agent(name="payer")
    async def agent() -> object:
        return await pay("a")

    with pytest.raises(nl.RunFailed, match=kind):
        once(agent)


LEAVING: list[int] = []


@dataclass
class Leaves:
    """A value whose own code ends the process that reads it."""

    number: int

    def __post_init__(self) -> None:
        """Leave."""
        if LEAVING:
            sys.exit("seven")


def test_an_argument_that_leaves_the_process_is_the_runs_error() -> None:
    @nl.agent(name="taker")
    async def agent(one: Leaves) -> int:
        return one.number

    async def main() -> object:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, Leaves(1), id="run")
            LEAVING.append(1)
            working = asyncio.create_task(rt.work())
            try:
                with pytest.raises(nl.RunFailed, match="seven"):
                    await run.result(DEADLINE_SECONDS)
            finally:
                LEAVING.clear()
            done = await (await rt.start(other)).result(DEADLINE_SECONDS)
            working.cancel()
            return done

    assert run_async(main) == "done"


async def _asked(order: str) -> bool:
    return False


class _Asked:
    async def __call__(self, order: str) -> bool:
        return False


@pytest.mark.parametrize("where", ["approval", "key", "upgrade"])
@pytest.mark.parametrize(
    "function", [_asked, _Asked(), nl.Approval(when=_asked)], ids=["def", "object", "Approval"]
)
def test_an_async_function_whose_answer_is_needed_at_once_is_refused(where: str, function: Any) -> None:
    if isinstance(function, nl.Approval) and where != "approval":
        pytest.skip("of approvals only")
    options: dict[str, Any] = {where: function}
    with pytest.raises(nl.UsageError, match="async"):

        @nl.action(name="pay", **options)
        async def pay(order: str) -> int:
            return 1


def _given(*_: str) -> Any:
    return _asked("a")


def test_a_predicate_that_gives_something_to_be_awaited_is_refused() -> None:
    @nl.action(name="pay", approval=partial(_given, "a"))
    async def pay(order: str) -> int:
        return 1

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("a")

    with pytest.raises(nl.RunFailed, match="returned an awaitable"):
        once(agent)
