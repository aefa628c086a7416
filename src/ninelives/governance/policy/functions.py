"""Policies as plain functions: `@nl.policy`. A function that fails, hangs or answers wrongly never allows.

It is called on a thread of its own, with a time limit, outside of any run: it must only look at the call.
This module imports little, since `import ninelives` reaches it.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, overload

from ninelives.core.errors import InvariantViolation, UsageError
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.governance.policy.protocol import failed

Gate = Callable[[Call], Any]
_SECONDS, _MOST_ABANDONED = 1.0, 16


@overload
def policy(function: Gate, /) -> FunctionPolicy: ...
@overload
def policy(*, name: str | None = None, timeout: float = _SECONDS) -> Callable[[Gate], FunctionPolicy]: ...
def policy(function: Gate | None = None, /, *, name: str | None = None, timeout: float = _SECONDS) -> Any:
    """Declare a policy: a plain function that takes an `nl.Call` and returns a verdict.

    The verdict is `nl.Allow()`, `nl.Deny(why)`, `nl.Ask(to=..., why=...)` or `nl.Rewrite(args={...})`. If the
    function raises, returns anything else, or takes longer than `timeout` seconds, the run escalates.
    Give it to `nl.Runtime(policy=...)`. Raises UsageError for an async function.
    """
    if function is None:
        return lambda declared: function_policy(declared, name, timeout)
    return function_policy(function, name, timeout)


def function_policy(function: Gate, name: str | None = None, timeout: Any = _SECONDS) -> FunctionPolicy:
    """Return the policy that a function is. Raises UsageError if it cannot be one."""
    inner = inspect.unwrap(function)
    is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - its own code, not whether it can be called
    )
    if is_async or inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise UsageError(f"the policy {function!r} is async, or yields", remedy="Write it with a plain def")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 60:
        raise UsageError(f"timeout={timeout!r}", remedy="Give seconds, above 0 and up to 60")
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        remedy = "Write it as: def gate(call: nl.Call) -> nl.Allow | nl.Deny"
        raise UsageError(f"the policy {function!r} does not take one call", remedy=remedy) from None
    own = str(getattr(function, "__qualname__", type(function).__name__))
    return FunctionPolicy(function, name or own, timeout)


class FunctionPolicy:
    """A function that judges calls. It can be called as the function that it was."""

    tables: Final[Mapping[str, Any]] = {}

    def __init__(self, function: Gate, name: str, timeout: float) -> None:
        self.name, self.function, self.timeout = name, function, timeout
        self.text = _source(function)
        self._digest = ""
        self._threads = _Threads(f"policy {name}")
        self.__doc__ = function.__doc__

    @property
    def digest(self) -> str:
        """The digest of its source."""
        if not self._digest:
            from ninelives.governance.policy.file import digest_of

            self._digest = digest_of(self.text)
        return self._digest

    def __call__(self, call: Call) -> Any:
        """Call the function itself, without its time limit."""
        return self.function(call)

    def judge(self, call: Call) -> Judgement:
        """Return the function's verdict; if it gave none in time, a judgement with an error."""
        answer = self._threads.ask(self.function, call, self.timeout)
        if isinstance(answer, str):
            return failed(self.digest, (self.name,), f"the policy {self.name!r} {answer}")
        (verdict,) = answer
        fault = _fault(verdict, call)
        if fault:
            return failed(self.digest, (self.name,), f"the policy {self.name!r} returned {fault}")
        return Judgement(verdict, (self.name,), self.digest)

    def prove(self) -> None:
        """Prove that a function's verdicts arrive, and that failures become errors. Raises UsageError."""
        from ninelives.governance.policy.canary import must

        call = Call(action="canary", kind="action", args={}, run="canary", agent="canary")
        must(
            FunctionPolicy(lambda _: Deny("it must be denied"), self.name, 5).judge(call), "denied", self.name
        )
        must(FunctionPolicy(lambda _: True, self.name, 5).judge(call), "refused", self.name)
        must(FunctionPolicy(lambda _: 1 / 0, self.name, 5).judge(call), "refused", self.name)


def _fault(verdict: Any, call: Call) -> str:
    """Return what is wrong with a function's answer; empty if it is a verdict."""
    kind = type(verdict)
    if inspect.iscoroutine(verdict):
        verdict.close()
        return "a coroutine: write it with a plain def"
    if kind not in (Allow, Deny, Ask, Rewrite):
        return f"{kind.__name__}, which is no verdict"
    if kind is Deny and type(verdict.why) is not str:
        return "a Deny without a reason"
    if kind is Ask and not (type(verdict.to) is str and type(verdict.why) is str):
        return "an Ask whose `to` or `why` is no text"
    if kind is Ask and not (type(verdict.approvals) is int and 1 <= verdict.approvals <= 20):
        return f"an Ask for {verdict.approvals!r} approvals"
    if kind is Ask and verdict.timeout is not None and not _is_time(verdict.timeout):
        return f"an Ask with timeout={verdict.timeout!r}"
    if kind is Rewrite and not _fits(verdict.args, call):
        return "a Rewrite of nothing, or of what is no argument of the call"
    return ""


def _fits(args: Any, call: Call) -> bool:
    return isinstance(args, Mapping) and bool(args) and args.keys() <= call.args.keys()


def _is_time(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < 10**9


def _source(function: Gate) -> str:
    """Return what a function says, as far as that can be read."""
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        code = getattr(inspect.unwrap(function), "__code__", None)
        return f"{function!r}" if code is None else f"{code.co_name} {code.co_code.hex()} {code.co_consts!r}"


# Threads -----------------------------------------------------------------------------------------


class _Thread:
    """A thread that calls a function, again and again."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[tuple[Gate, Call, float] | None] = SimpleQueue()
        self.answers: SimpleQueue[tuple[Any] | str] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (given := self.calls.get()) is not None:
            function, call, timeout = given
            begun = time.monotonic()
            try:
                answer: tuple[Any] | str = (function(call),)
            except BaseException as error:  # noqa: BLE001 - it may raise anything, and the gate must stand
                fatal = isinstance(error, InvariantViolation)
                what = f": {error}" if isinstance(error, UsageError) else ""
                answer = f"raised {type(error).__name__}{', a bug in Nine Lives' if fatal else what}"
            # Also if the caller was slower than the function, and could still take its answer.
            self.answers.put(answer if time.monotonic() - begun <= timeout else _late(timeout))
            del given, function, call, answer


def _late(timeout: float) -> str:
    return f"gave no verdict within {timeout:g} s"


class _Threads:
    """Threads that are idle, for one policy. One that hangs is abandoned, and some may be."""

    def __init__(self, name: str) -> None:
        self._name, self._idle, self._abandoned, self._pid = name, list[_Thread](), 0, os.getpid()
        self._lock = threading.Lock()

    def ask(self, function: Gate, call: Call, timeout: float) -> tuple[Any] | str:
        """Return the function's answer, or why there is none."""
        with self._lock:
            if self._pid != os.getpid():  # a forked child has none of its parent's threads
                self._idle, self._abandoned, self._pid = [], 0, os.getpid()
            if self._abandoned >= _MOST_ABANDONED:
                return f"has hung {self._abandoned} times, and is not asked again"
            thread = self._idle.pop() if self._idle else None
        thread = thread or _Thread(self._name)
        thread.calls.put((function, call, timeout))
        try:
            answer = thread.answers.get(timeout=timeout)
        except Empty:
            thread.calls.put(None)  # it ends when the function returns, if ever
            with self._lock:
                self._abandoned += 1
            return _late(timeout)
        with self._lock:
            self._idle.append(thread)
        return answer
