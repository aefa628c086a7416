"""Same value, same error: on first execution and on replay, for every type that is supported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ninelives as nl
from ninelives.core.values.codec import codec_for
from tests.replay.lifetimes import Stage, once, twice
from tests.unit.sample_types import TYPED, untyped_values

FEW = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))


class Declined(Exception):
    """An error that the step lists."""


class Strange(Exception):
    """An error that it does not."""


def seen_twice(values: list[Any], returns: Any) -> tuple[list[Any], list[Any]]:
    """Return what an agent sees of a step's values, in its first life and in its second."""
    stage, seen = Stage(), ([], [])  # type: tuple[Stage, tuple[list[Any], list[Any]]]

    async def give(number: int) -> Any:
        return stage.did(values[number])

    async def last() -> None:
        await stage.stop_here()

    step = nl.action(give, name="give", returns=returns)
    end = nl.action(last, name="last")

    @nl.agent(name="values")
    async def agent() -> None:
        for number in range(len(values)):
            seen[stage.is_second].append(await step(number))
        await end()

    twice(stage, agent)
    assert stage.executed == []
    return seen


@pytest.mark.parametrize(("annotation", "strategy"), TYPED, ids=[str(one[0]) for one in TYPED])
def test_a_value_is_the_same_on_replay(annotation: Any, strategy: st.SearchStrategy[Any]) -> None:
    @FEW
    @given(st.lists(strategy, min_size=1, max_size=5))
    def check(values: list[Any]) -> None:
        returns = type(None) if annotation is None else annotation
        first, again = seen_twice(values, returns)
        codec = codec_for(returns)
        assert [type(one) for one in first] == [type(one) for one in again]
        assert first == again == values
        assert [codec.encode(one) for one in first] == [codec.encode(one) for one in again]

    check()


@FEW
@given(st.lists(untyped_values, min_size=1, max_size=5))
def test_a_value_without_an_annotation_is_the_same_on_replay(values: list[Any]) -> None:
    first, again = seen_twice(values, None)
    assert repr(first) == repr(again)
    assert first == values


@pytest.mark.parametrize(
    ("returns", "given_value", "seen"),
    [(float, 3, 3.0), (list[float], [1, 2], [1.0, 2.0]), (str, "x", "x")],
)
def test_the_first_execution_gives_the_recorded_type(returns: Any, given_value: Any, seen: Any) -> None:
    first, again = seen_twice([given_value], returns)
    assert repr(first) == repr(again) == repr([seen])


ERRORS = [
    ValueError("bad"),
    KeyError("k"),
    FileNotFoundError(2, "gone", "/x"),
    ZeroDivisionError(),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "no"),
    nl.Permanent("no"),
    nl.StepFailed("failed", remedy="none"),
    Declined("declined", 42),
    Strange("strange"),
    ExceptionGroup("several", [ValueError("one")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_decision", [True, False])
def test_an_error_is_the_same_on_replay_and_nothing_is_executed(error: Exception, is_decision: bool) -> None:
    stage, seen = Stage(), []

    async def fail() -> int:
        stage.did("fail")
        raise error

    async def last() -> None:
        await stage.stop_here()

    declare: Any = nl.decision if is_decision else nl.action
    step = declare(fail, name="fail", raises=[Declined], retry=nl.Retry(attempts=1))
    end = nl.action(last, name="last")

    @nl.agent(name="errors")
    async def agent() -> None:
        try:
            await step()
        except Exception as caught:
            seen.append((type(caught), str(caught), caught.args))
        await end()

    twice(stage, agent)
    assert stage.executed == []
    assert seen[0] == seen[1]
    expected = nl.StepFailed if type(error) in (Strange, ExceptionGroup) else type(error)
    assert seen[0][0] is expected


def test_a_result_that_cannot_be_kept_fails_the_step_and_says_where() -> None:
    @nl.action(name="bad")
    async def bad() -> dict[str, Any]:
        return {"good": 1, "items": [1, object()]}

    @nl.agent(name="unserialisable")
    async def agent() -> str:
        with pytest.raises(nl.NotSerializable) as caught:
            await bad()
        return str(caught.value)

    said = once(agent, id="r")
    assert "items[1]" in said
    assert "bad" in said
    assert "'r'" in said


def test_an_argument_that_cannot_be_kept_is_refused_before_the_body_runs() -> None:
    executed: list[str] = []

    @nl.action(name="taking")
    async def taking(thing: Any) -> None:
        executed.append("taking")

    @nl.agent(name="refusing")
    async def agent() -> str:
        with pytest.raises(nl.NotSerializable) as caught:
            await taking({"deep": [object()]})
        return str(caught.value)

    said = once(agent)
    assert "deep" in said
    assert "thing" in said
    assert executed == []


def test_an_agents_bad_arguments_are_refused_before_anything_is_kept() -> None:
    @nl.agent(name="picky")
    async def agent(order: dict[str, Any]) -> None: ...

    with pytest.raises(nl.NotSerializable, match=r"picky\(order\)"):
        once(agent, {"at": object()})
    with pytest.raises(nl.UsageError, match="do not fit"):
        once(agent, {}, {})


def test_an_agents_bad_result_fails_the_run() -> None:
    @nl.agent(name="bad-result")
    async def agent() -> Any:
        return object()

    with pytest.raises(nl.RunFailed) as caught:
        once(agent)
    assert isinstance(caught.value.__cause__, nl.NotSerializable)


@pytest.mark.parametrize("size", [70_000, 1_500_000])
def test_large_values_are_arguments_and_results(size: int) -> None:
    stage, seen = Stage(), []

    @nl.action(name="grow")
    async def grow(text: str) -> str:
        return str(stage.did(text[::-1]))

    @nl.action(name="last")
    async def last() -> None:
        await stage.stop_here()

    @nl.agent(name="large")
    async def agent(text: str) -> str:
        seen.append(await grow(text))
        await last()
        return seen[-1]

    text = ("0123456789" * (size // 10))[:size]
    assert twice(stage, agent, text) == text[::-1]
    assert seen == [text[::-1]] * 2
    assert stage.executed == []


def test_a_body_that_changes_its_arguments_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    @nl.action(name="spoiler")
    async def spoiler(items: list[int]) -> int:
        items.append(len(items))
        return len(items)

    @nl.action(name="decent")
    async def decent(items: list[int]) -> list[int]:
        return [*items, len(items)]

    @nl.agent(name="careless")
    async def agent() -> int:
        items: list[int] = []
        await decent(items)
        for _ in range(5):
            await spoiler(items)
        return len(items)

    assert once(agent) == 5
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "'spoiler'" in said[0]
    assert "changes its arguments" in said[0]
