"""What a test asks of runs and inbox items. Each call is done by the present life of the sandbox.

Nothing here decides anything: each method hands the same call to `Run` or `InboxItem`; one that is cut short
by a death is made again by the next life, as a person or a client would.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET

from ninelives.core.journal.answers import Asked
from ninelives.core.journal.output import Output
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.runtime.inbox import InboxItem
from ninelives.runtime.output_reader import OutputReader
from ninelives.runtime.run import Run
from ninelives.views.checkpoint import Checkpoint
from ninelives.views.history import Entry

if TYPE_CHECKING:
    from ninelives.testing.sandbox import Sandbox

T = TypeVar("T")
TESTER = "tester"
"""In whose name a test answers, unless it says otherwise."""


class SandboxRun:
    """A handle to a run of a sandbox; see `Run`."""

    def __init__(self, sandbox: Sandbox, id: str) -> None:
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
        """Return the run's state as it is. Raises UnknownRun."""
        return self._do(lambda run: run.status())

    def history(self) -> list[Entry]:
        """Return all that is recorded of the run."""
        return self._do(lambda run: run.history())

    def checkpoint(self) -> Checkpoint:
        """Return where the run is."""
        return self._do(lambda run: run.checkpoint())

    def emitted(self, *, type: Any = Any) -> list[Output]:
        """Return what the run has emitted so far; see `Run.stream`."""
        return OutputReader(self.id, 0, type).read(self._sandbox.store) or []

    def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal, durably; the run hears of it when it is worked on."""
        named = id if id is not None else self._sandbox.next_signal()
        self._do(lambda run: run.signal(name, value, id=named))

    def cancel(self) -> None:
        """Ask for the run's end; see `Run.cancel`."""
        self._do(lambda run: run.cancel())

    def pause(self) -> None:
        """Let the run stop before its next step or wait."""
        self._do(lambda run: run.pause())

    def resume(self) -> None:
        """Let a paused run go on."""
        self._do(lambda run: run.resume())

    def retry(self) -> None:
        """Let a failed run go on from the step that failed."""
        self._do(lambda run: run.retry())

    def _do(self, work: Callable[[Run], Awaitable[T]]) -> T:
        return self._sandbox.do(lambda runtime: work(Run(runtime, self.id)))


class SandboxItem:
    """An inbox item of a sandbox; see `InboxItem`."""

    def __init__(self, sandbox: Sandbox, item: InboxItem) -> None:
        self._sandbox, self.item = sandbox, item

    def __repr__(self) -> str:
        return repr(self.item)

    @property
    def id(self) -> str:
        """Name the item."""
        return self.item.id

    @property
    def run(self) -> str:
        """Name the run that waits."""
        return self.item.run

    @property
    def kind(self) -> ItemKind:
        """Say why a person is asked."""
        return self.item.kind

    @property
    def asked(self) -> Asked:
        """What is asked: in words, with arguments, key, options, and the evidence."""
        return self.item.asked

    def approve(self, *, by: str = TESTER, note: str = "") -> None:
        """Say yes to exactly what the item shows."""
        self._give(lambda item: item.approve(by=by, note=note))

    def deny(self, *, by: str = TESTER, note: str = "") -> None:
        """Say no."""
        self._give(lambda item: item.deny(by=by, note=note))

    def answer(self, value: Any, *, by: str = TESTER, note: str = "") -> None:
        """Answer a question."""
        self._give(lambda item: item.answer(value, by=by, note=note))

    def settle(self, *, happened: bool, result: Any = UNSET, by: str = TESTER, note: str = "") -> None:
        """Say what became of an action in doubt."""
        self._give(lambda item: item.settle(happened=happened, result=result, by=by, note=note))

    def retry(self, *, by: str = TESTER, note: str = "") -> None:
        """Let the run go on."""
        self._give(lambda item: item.retry(by=by, note=note))

    def fail(self, *, by: str = TESTER, note: str = "") -> None:
        """Give the run up."""
        self._give(lambda item: item.fail(by=by, note=note))

    def _give(self, give: Callable[[InboxItem], Awaitable[None]]) -> None:
        shown = self.item._item  # the answer is to what the test was shown
        self._sandbox.do(lambda runtime: give(InboxItem(runtime, shown)))
