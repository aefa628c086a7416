"""A test's handles to runs and inbox items, executed by the sandbox's current runtime.

Their methods are those of `Run` and `InboxItem` (see `runtime.blocking`). A call that a death cuts short is
repeated by the next runtime, as a person or a client would repeat it; so what it creates has a fixed id.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from ninelives.core.journal.output import Output
from ninelives.core.model.run import RunRow
from ninelives.engine.worker.fork import UNCHANGED
from ninelives.runtime.blocking import PlainItem, PlainRun
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.output_reader import OutputReader
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import Runtime
from ninelives.store import Store

T = TypeVar("T")
TESTER = "tester"
"""The default author of a test's answers."""


class Worked(Protocol):
    """What handles need of their sandbox."""

    @property
    def store(self) -> Store:
        """Return the store, as the test sees it."""

    def do(self, work: Callable[[Runtime], Coroutine[Any, Any, T]], /) -> T:
        """Run `work` on the current runtime."""

    def work_for(self, run: str, /) -> RunRow:
        """Work until a run has ended or is escalated."""

    def next_id(self) -> str:
        """Return a new id for a signal or a fork."""


class SandboxRun(PlainRun):
    """A handle to a run of a sandbox; see `Run`."""

    def __init__(self, sandbox: Worked, id: str) -> None:
        self._sandbox, self.id = sandbox, id

    def __repr__(self) -> str:
        return f"<run {self.id!r} in a sandbox>"

    def _do(self, work: Callable[[Run], Coroutine[Any, Any, T]]) -> T:
        return self._sandbox.do(lambda runtime: work(Run(runtime, self.id)))

    def result(self) -> Any:
        """Work, skip time, and return the run's result.

        Raises RunFailed (from what the agent raised), RunCancelled, RunEscalated; Stuck.
        """
        self._sandbox.work_for(self.id)
        return self._do(Run.result)

    def emitted(self, *, type: Any = Any) -> list[Output]:
        """Return what the run has emitted so far, without working on it; see `Run.stream`."""
        return OutputReader(self.id, 0, type).read(self._sandbox.store) or []

    def stream(self, offset: int = 0, *, type: Any = Any) -> Iterator[Output]:
        """Work until the run has ended or is escalated, and yield its output; see `Run.stream`."""
        reader = OutputReader(self.id, offset, type)
        self._sandbox.work_for(self.id)
        yield from reader.read(self._sandbox.store) or []

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal, durably; the run receives it when it is worked on."""
        named = id if id is not None else self._sandbox.next_id()
        self._do(lambda run: run.signal(name, value, id=named))

    def fork(
        self, at: str | int, result: Any = UNCHANGED, *, id: str | None = None, after: str = "ask"
    ) -> SandboxRun:
        """Create a run that shares this run's records up to a step; see `Run.fork`."""
        named = id if id is not None else f"{self.id}-{self._sandbox.next_id()}"
        made = self._do(lambda run: run.fork(at, result, id=named, after=after))
        return SandboxRun(self._sandbox, made.id)


class SandboxItem(PlainItem):
    """An inbox item of a sandbox; see `InboxItem`. Answers are given in the name of TESTER."""

    def __init__(self, sandbox: Worked, item: InboxItem) -> None:
        self._sandbox, self.item = sandbox, item

    def _do(self, work: Callable[[InboxItem], Coroutine[Any, Any, T]]) -> T:
        return self._sandbox.do(lambda runtime: work(self.item.seen_by(TESTER, runtime)))
