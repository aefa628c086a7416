"""A test's handles to runs and inbox items, executed by the sandbox's current runtime.

There is no logic here: each method calls the same method of `Run` or `InboxItem`. A call that a death cuts
short is repeated by the next runtime, as a person or a client would repeat it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from ninelives.core.journal.answers import Asked
from ninelives.core.journal.output import Output
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import RunRow, State
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.output_reader import OutputReader
from ninelives.runtime.run import Run
from ninelives.runtime.runtime import Runtime
from ninelives.store import Store
from ninelives.views.checkpoint import Checkpoint
from ninelives.views.history import Entry

T = TypeVar("T")
TESTER = "tester"
"""The default author of a test's answers."""


class Worked(Protocol):
    """What handles need of their sandbox."""

    @property
    def store(self) -> Store:
        """Return the store, as the test sees it."""

    def do(self, work: Callable[[Runtime], Awaitable[T]], /) -> T:
        """Run `work` on the current runtime."""

    def work_for(self, run: str, /) -> RunRow:
        """Work until a run has ended or is escalated."""

    def next_signal(self) -> str:
        """Return a new signal id."""


class SandboxRun:
    """A handle to a run of a sandbox; see `Run`."""

    def __init__(self, sandbox: Worked, id: str) -> None:
        self._sandbox, self.id = sandbox, id

    def __repr__(self) -> str:
        return f"<run {self.id!r} in a sandbox>"

    def result(self) -> Any:
        """Work, skip time, and return the run's result.

        Raises RunFailed (from what the agent raised), RunCancelled, RunEscalated; Stuck.
        """
        self._sandbox.work_for(self.id)
        return self._do(lambda run: run.result())

    def status(self) -> State:
        """Return the run's state without working on it. Raises UnknownRun."""
        return self._do(lambda run: run.status())

    def history(self) -> list[Entry]:
        """Return all records of the run."""
        return self._do(lambda run: run.history())

    def checkpoint(self) -> Checkpoint:
        """Return where the run is."""
        return self._do(lambda run: run.checkpoint())

    def emitted(self, *, type: Any = Any) -> list[Output]:
        """Return what the run has emitted so far; see `Run.stream`."""
        return OutputReader(self.id, 0, type).read(self._sandbox.store) or []

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal, durably; the run receives it when it is worked on."""
        named = id if id is not None else self._sandbox.next_signal()
        self._do(lambda run: run.signal(name, value, id=named))

    def cancel(self) -> None:
        """Request cancellation of the run; see `Run.cancel`."""
        self._do(lambda run: run.cancel())

    def pause(self) -> None:
        """Pause the run before its next step or wait."""
        self._do(lambda run: run.pause())

    def resume(self) -> None:
        """Resume a paused run."""
        self._do(lambda run: run.resume())

    def retry(self) -> None:
        """Continue a failed run at the step that failed."""
        self._do(lambda run: run.retry())

    def _do(self, work: Callable[[Run], Awaitable[T]]) -> T:
        return self._sandbox.do(lambda runtime: work(Run(runtime, self.id)))


class SandboxItem:
    """An inbox item of a sandbox; see `InboxItem`."""

    def __init__(self, sandbox: Worked, item: InboxItem) -> None:
        self._sandbox, self.item = sandbox, item

    def __repr__(self) -> str:
        return repr(self.item)

    @property
    def id(self) -> str:
        """The item's id."""
        return self.item.id

    @property
    def run(self) -> str:
        """The id of the waiting run."""
        return self.item.run

    @property
    def kind(self) -> ItemKind:
        """Why a person is asked."""
        return self.item.kind

    @property
    def asked(self) -> Asked:
        """The request: its text, arguments, key, options and evidence."""
        return self.item.asked

    def approve(self, *, by: str = TESTER, note: str = "") -> None:
        """Approve exactly what the item shows."""
        self._give(lambda item: item.approve(by=by, note=note))

    def deny(self, *, by: str = TESTER, note: str = "") -> None:
        """Deny it."""
        self._give(lambda item: item.deny(by=by, note=note))

    def answer(self, value: Any, *, by: str = TESTER, note: str = "") -> None:
        """Answer a question."""
        self._give(lambda item: item.answer(value, by=by, note=note))

    def settle(self, *, happened: bool, result: Any = UNSET, by: str = TESTER, note: str = "") -> None:
        """Settle an action in doubt: whether it happened, and its result."""
        self._give(lambda item: item.settle(happened=happened, result=result, by=by, note=note))

    def retry(self, *, by: str = TESTER, note: str = "") -> None:
        """Let the run try again."""
        self._give(lambda item: item.retry(by=by, note=note))

    def fail(self, *, by: str = TESTER, note: str = "") -> None:
        """Let the run fail."""
        self._give(lambda item: item.fail(by=by, note=note))

    def _give(self, give: Callable[[InboxItem], Awaitable[None]]) -> None:
        self._sandbox.do(lambda runtime: give(self.item.through(runtime)))
