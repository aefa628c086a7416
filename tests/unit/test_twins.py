"""Plain twins of async classes: none lacks a method, and none has other parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives import sync
from ninelives.engine.agent.children import Child
from ninelives.runtime.blocking import BlockingItem, BlockingRun
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import BlockingRuntime, Runtime
from ninelives.testing import Sandbox, SandboxItem, SandboxRun

TWINS: list[tuple[type, type, dict[str, str]]] = [
    (Runtime, BlockingRuntime, {}),
    (Run, BlockingRun, {}),
    (InboxItem, BlockingItem, {}),
    (Child, sync.Child, {}),
    (InboxItem, SandboxItem, {}),
    (Run, SandboxRun, {"result": "its time limit would be skipped"}),
    (
        Runtime,
        Sandbox,
        {"list": "gives all runs", "inbox": "gives all open items", "work": "works until it is idle"},
    ),
]
"""An async class, its plain twin, and which of its methods take other parameters on purpose."""
OF_OURS = {"call", "create_here", "until", "until_output"}
"""Public methods of a runtime that only our own handles use."""
WITHOUT = {
    "gather": "plain code has threads instead of awaitables: nl.sync.map, asyncio.to_thread",
    "timeout": "nothing can stop a thread in the middle of a block; a step has timeout=",
}
"""What agents await and plain agents have no twin of, and why."""


def _is_async(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def _parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [
        (one.name, one.kind, one.default) for one in list(inspect.signature(method).parameters.values())[1:]
    ]


@pytest.mark.parametrize(("original", "plain", "apart"), TWINS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_twin_has_every_async_method_with_the_same_parameters(
    original: type, plain: type, apart: dict[str, str]
) -> None:
    methods = {
        name: method
        for name, method in vars(original).items()
        if _is_async(method) and not name.startswith("_") and name not in OF_OURS
    }
    assert methods
    for name, method in methods.items():
        twin = getattr(plain, name, None)
        assert twin is not None, f"{plain.__name__} lacks {name}"
        assert not _is_async(twin)
        assert twin.__doc__
        if name not in apart:
            assert _parameters(twin) == _parameters(method), f"{plain.__name__}.{name}"
    assert apart.keys() <= methods.keys()


def test_everything_that_an_agent_awaits_has_a_plain_twin_or_a_reason() -> None:
    functions = {name: one for name in dir(nl) if inspect.isfunction(one := getattr(nl, name))}
    awaited = {name for name, one in functions.items() if _is_async(one) or _is_async(inspect.unwrap(one))}
    assert {"sleep", "spawn", "timeout"} <= awaited
    assert awaited - set(sync.__all__) == WITHOUT.keys()


@pytest.mark.parametrize("name", [name for name in sync.__all__ if name not in ("Child", "emit", "map")])
def test_a_function_for_plain_agents_has_the_parameters_of_its_async_twin(name: str) -> None:
    twins = (inspect.signature(getattr(module, name)) for module in (nl, sync))
    plain, original = ([(one.name, one.kind) for one in twin.parameters.values()] for twin in twins)
    assert plain == original


def test_a_blocking_runtime_takes_limits(tmp_path: Path) -> None:
    @nl.agent(name="greeted")
    async def greeted(name: str) -> str:
        return f"hello {name}"

    with nl.Runtime(f"sqlite:///{tmp_path}/lives.db").sync() as runtime:
        run = runtime.start(greeted, "you", id="one")
        runtime.work(limits={"greeted": 0}, until_idle=True)
        assert run.status() == "pending"
        runtime.work(limits={"greeted": 1}, until_idle=True)
        assert run.result() == "hello you"


def test_the_thread_of_a_blocking_runtime_ends_even_if_its_store_cannot_be_closed(tmp_path: Path) -> None:
    blocking = nl.Runtime(f"sqlite:///{tmp_path}/lives.db").sync()

    def close() -> None:
        type(store).close(store)
        raise OSError("it cannot be closed")

    blocking.__enter__()
    store: Any = blocking._runtime.store
    store.close = close
    with pytest.raises(OSError, match="cannot be closed"):
        blocking.__exit__(None, None, None)
    assert not blocking._loop._thread.is_alive()


def test_a_run_of_a_sandbox_streams_and_forks() -> None:
    @nl.action(name="doubled")
    async def doubled(number: int) -> int:
        await nl.emit(f"doubled {number}")
        return number * 2

    @nl.agent
    async def reckon(number: int) -> int:
        return await doubled(number) + 1

    with Sandbox() as sandbox:
        run = sandbox.start(reckon, 4)
        assert [item.value for item in run.stream(type=str)] == ["doubled 4"]
        assert run.result() == 9
        fork = run.fork("doubled[0]", 100)
        assert fork.result() == 101
        assert fork.id != run.id
