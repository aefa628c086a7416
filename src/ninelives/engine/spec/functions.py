"""Questions about users' functions: whether one is async, and whether two are the same one."""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

_MAIN = "__main__"
_MOST_WRAPPERS = 100  # a chain of wrappers may be cyclic


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call returns an awaitable.

    True for an `async def`, an object whose `__call__` is one, a partial of either, and a plain wrapper
    (functools.wraps) around either, which passes the awaitable on.
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
    """Return whether `new` replaces `known`: in `__main__`, the later definition wins.

    Otherwise every cell of a notebook could be executed only once.
    """
    one, other = inspect.unwrap(known), inspect.unwrap(new)
    if not getattr(one, "__module__", None) == getattr(other, "__module__", None) == _MAIN:
        return False
    return one.__qualname__ == other.__qualname__ or hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


def are_rivals(known: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Return whether two module-level functions are different ones, so that one name cannot mean both.

    Functions of a module that is reloaded, or imported again under another name, are the same. Functions
    inside functions (of a factory, of a test) are created repeatedly and never rivals: the last one counts.
    """
    one, other = inspect.unwrap(known), inspect.unwrap(new)
    codes = [getattr(each, "__code__", None) for each in (one, other)]
    if None in codes or any("<locals>" in each.__qualname__ for each in (one, other)):
        return False
    same = one.__qualname__ == other.__qualname__ and (
        codes[0].co_filename == codes[1].co_filename or one.__module__ == other.__module__  # type: ignore[union-attr]
    )
    return not same and not is_redefined(known, new)
