"""Steps that are methods: the step and its `raw` are bound like any method.

`@nl.action` works on methods as on functions, above or below `@classmethod` and `@staticmethod`. Below a
`@classmethod`, Python 3.13 and later bind only the call: put `@nl.action` above it to have `raw` bound too.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any


class Method:
    """A step defined in the body of a class: a descriptor that binds the step and its `raw`."""

    def __init__(self, call: Callable[..., Any], raw: Callable[..., Any], *, of_class: bool = False) -> None:
        functools.update_wrapper(self, call)
        self._call, self._of_class = call, of_class
        self.raw = raw
        _mark(self, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        to = (owner or type(instance)) if self._of_class else instance
        if to is None:
            return self
        return Bound(MethodType(self._call, to), MethodType(self.raw, to))


class Bound:
    """A step that is bound to its object or class."""

    def __init__(self, call: MethodType, raw: MethodType) -> None:
        self.__wrapped__, self.__self__, self.__func__ = call, call.__self__, call.__func__
        self.__name__, self.__doc__ = call.__name__, call.__doc__
        self.__qualname__ = getattr(call.__func__, "__qualname__", call.__name__)
        self.__ninelives__ = call.__func__.__ninelives__  # type: ignore[attr-defined]
        self.raw = raw
        _mark(self, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.__wrapped__ == other.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)


def is_method(function: Callable[..., Any]) -> bool:
    """Return whether a function is defined in the body of a class."""
    outer, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(outer) and not outer.endswith("<locals>")


def _mark(callable_: Any, call: Callable[..., Any]) -> None:
    """Mark a callable so that frameworks see that the call returns a coroutine."""
    if not inspect.iscoroutinefunction(call):
        return
    mark = getattr(inspect, "_is_coroutine_mark", None)
    if mark is not None:  # inspect.markcoroutinefunction would mark the inner function instead
        callable_._is_coroutine_marker = mark  # noqa: SLF001
    else:
        callable_._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
