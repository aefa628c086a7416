"""A run's arguments reach the parameters that they were given for, also after a change of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import AGENTS


def _plain(a: int, b: int = 1, c: int = 2) -> Any:
    return a, b, c


def _only(a: int, b: int = 1, /, c: int = 2, *, d: int = 3) -> Any:
    return a, b, c, d


def _open(a: int = 0, *rest: int, d: int = 3, **extra: int) -> Any:
    return a, rest, d, extra


def _grown(a: int = 0, new: int = 9, *rest: int, d: int = 3, **extra: int) -> Any:
    return a, new, rest, d, extra


def _taking(d: int = 3, **extra: int) -> Any:
    return d, extra


def _rest(d: int = 3, *rest: int) -> Any:
    return d, rest


def _fewer(d: int = 3) -> Any:
    return d


def _required(d: int, e: int) -> Any:
    return d, e


def _kept(old: Callable[..., Any], new: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Encode a call of one function, and make it of another."""
    nl.agent(name="arguments.old")(old)
    body, _ = agent_arguments.encode(AGENTS["arguments.old"], args, kwargs)
    nl.agent(name="arguments.new")(new)
    positional, named, _ = agent_arguments.decode(AGENTS["arguments.new"], body, "run", {})
    return new(*positional, **named)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (_plain, (7,), {}),
        (_plain, (7,), {"c": 5}),
        (_plain, (), {"c": 5, "a": 7}),
        (_only, (7,), {"c": 5}),
        (_only, (7,), {"d": 5}),
        (_only, (7, 8), {"c": 5, "d": 6}),
        (_open, (), {"d": 5, "z": 6}),
        (_open, (7, 8, 9), {"z": 6}),
    ],
)
def test_each_argument_reaches_its_parameter(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> None:
    assert _kept(function, function, args, kwargs) == function(*args, **kwargs)


def test_a_new_parameter_with_a_default_takes_no_argument_of_another() -> None:
    assert _kept(_open, _grown, (7, 8), {"z": 6}) == (7, 9, (8,), 3, {"z": 6})


@pytest.mark.parametrize(
    ("old", "new", "args", "kwargs", "why"),
    [
        (_taking, _fewer, (4,), {"z": 6}, "no \\*\\*kwargs any more.*Put \\*\\*kwargs back"),
        (_open, _taking, (0, 8), {}, "has no parameter 'a'"),
        (_rest, _fewer, (4, 5), {}, "no \\*args any more.*Put \\*args back"),
        (_fewer, _required, (4,), {}, "missing a required argument: 'e'"),
    ],
)
def test_arguments_that_fit_no_more_are_refused(
    old: Callable[..., Any], new: Callable[..., Any], args: Any, kwargs: dict[str, Any], why: str
) -> None:
    with pytest.raises(nl.Divergence, match=why):
        _kept(old, new, args, kwargs)
