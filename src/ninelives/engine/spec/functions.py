"""What is asked of functions that people give us: whether they are async, and whether two are one."""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

_MAIN = "__main__"
_MOST_WRAPPERS = 100  # a chain of them may lead in a circle


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a call gives something to await.

    So it is of an `async def`, of an object whose `__call__` is one, of a partial of either, and of a plain
    wrapper (functools.wraps) around either, which passes on what it got.
    """
    link: Any = function
    for _ in range(_MOST_WRAPPERS):
        if inspect.iscoroutinefunction(link) or inspect.iscoroutinefunction(getattr(link, "__call__", None)):  # noqa: B004
            return True
        inner = link.func if isinstance(link, functools.partial) else getattr(link, "__wrapped__", None)
        if inner is None:
            break
        link = inner
    return False


def is_redefined(known: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Tell whether the second of two functions replaces the first: in `__main__`, the later definition wins.

    Else every cell of a notebook could be executed only once.
    """
    one, other = inspect.unwrap(known), inspect.unwrap(new)
    if not getattr(one, "__module__", None) == getattr(other, "__module__", None) == _MAIN:
        return False
    return one.__qualname__ == other.__qualname__ or hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


def are_rivals(known: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Tell whether two functions of modules are two, so that one name cannot mean both.

    A module that is loaded again, or once more under another name, has the same ones. Functions inside
    functions (of a factory, of a test) are made again and again: of these the last one is meant.
    """
    one, other = inspect.unwrap(known), inspect.unwrap(new)
    codes = [getattr(each, "__code__", None) for each in (one, other)]
    if None in codes or any("<locals>" in each.__qualname__ for each in (one, other)):
        return False
    same = one.__qualname__ == other.__qualname__ and (
        codes[0].co_filename == codes[1].co_filename or one.__module__ == other.__module__  # type: ignore[union-attr]
    )
    return not same and not is_redefined(known, new)
