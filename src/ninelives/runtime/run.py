"""A handle to a run: read it, wait for it and control it, from any process."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from typing import Any, Literal

from ninelives.core.errors import RunCancelled, RunError, RunEscalated, RunFailed, TimedOut, UnknownRun
from ninelives.core.journal.output import Output
from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Control, Kind, State
from ninelives.core.model.run import RunRow as Row
from ninelives.core.rules.run_rules import moved_away
from ninelives.core.values.codec import UNTYPED_CODEC, Codec
from ninelives.core.values.exceptions import decode_error
from ninelives.engine.agent import signals
from ninelives.engine.commit import large_bodies
from ninelives.engine.commit.sealing import writing_to
from ninelives.engine.spec.registry import AGENTS
from ninelives.engine.worker import fork as forks
from ninelives.engine.worker import run_retry
from ninelives.runtime.inbox import login
from ninelives.runtime.output_reader import OutputReader
from ninelives.runtime.store_calls import StoreCalls
from ninelives.store import Store
from ninelives.views import records_text, recoveries
from ninelives.views.checkpoint import Checkpoint, checkpoint


class Run:
    """A handle to a run. Any process may execute the run."""

    def __init__(self, runtime: StoreCalls, run: str) -> None:
        self._runtime, self.id = runtime, run
        self._completed: tuple[Codec, bytes] | None = None
        self._is_expected = self._is_over = False

    def expect(self) -> None:
        """Assume that the run was just created: the first check of `result` skips reading its state."""
        self._is_expected = True

    @property
    def is_over(self) -> bool:
        """Whether this process knows that the run ended or waits for a person; no session owns it then."""
        return self._completed is not None or self._is_over

    def complete(self, codec: Codec, value: bytes) -> None:
        """Note the result with which the run completed in this process; it is final."""
        self._completed = codec, value

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"

    async def status(self) -> State:
        """Return the run's state. Raises UnknownRun."""
        return (await self._row()).state

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Wait until the run ends and return its result.

        Raises RunFailed (from what the agent raised), RunCancelled, RunEscalated, TimedOut.
        """
        if self._completed is None:
            try:
                async with asyncio.timeout(timeout):
                    row = await self._runtime.until(self._ended)
            except TimeoutError:
                raise TimedOut(f"the run did not end within {timeout} s", run=self.id) from None
        if self._completed is not None:
            codec, value = self._completed
            return codec.recall(value)
        return await self._runtime.call(_result, row)

    async def history(self) -> list[records_text.Entry]:
        """Return every record of the run."""
        return await self._runtime.call(_history, self.id)

    async def checkpoint(self) -> Checkpoint:
        """Return what is durable of the run now."""
        return await self._runtime.call(_checkpoint, self.id)

    async def stream(self, offset: int = 0, *, type: Any = Any) -> AsyncIterator[Output]:
        """Yield the run's output after an offset, as it becomes durable; ends when the run ends.

        Values are decoded as `type`. A retraction withdraws what its step has emitted before.
        Raises UnknownRun; Corrupt; Divergence when a value is not of that type.
        """
        reader = OutputReader(self.id, offset, type)
        while not reader.has_ended:
            for item in await self._runtime.until_output(lambda: self._runtime.call(reader.read)):
                yield item

    async def signal(self, name: str, value: Any = None, *, id: str | None = None) -> None:
        """Send a signal. It is durable when this returns, and received once, in order per name.

        It may be sent before the run waits for it, or starts. Sending again with the same `id` has no effect.
        Raises UnknownRun; RunFinished; NotSerializable; IdConflict when the id was used for another signal.
        """
        with writing_to(self._runtime.store):
            body = signals.encode(value)
        await self._runtime.call(lambda store: store.send_signal(self.id, name, body, id=id))

    async def cancel(self) -> None:
        """Request cancellation: the run's code gets a CancelledError, its waits end, it ends as cancelled.

        Returns when the request is durable; `result` waits for the end. A second request has no effect.
        Raises UnknownRun; RunFinished when it has completed or failed.
        """
        await self._control(Control.CANCEL)

    async def pause(self) -> None:
        """Stop the run before its next step or wait, until `resume`.

        A step body that is executing is finished and recorded. Raises UnknownRun; RunFinished.
        """
        await self._control(Control.PAUSE)

    async def resume(self) -> None:
        """Let a paused run continue. Raises UnknownRun; RunFinished."""
        await self._control(Control.RESUME)

    async def _control(self, control: Control) -> None:
        await self._runtime.call(give_control, self.id, control)

    async def retry(self) -> None:
        """Resume a failed run at the step that failed; no effect on a run that has not ended.

        Raises RunFinished when it completed or was cancelled, or when its compensations have run.
        """
        await self._runtime.call(give_control, self.id, Control.RETRY)

    async def fork(
        self, at: str | int, result: Any = forks.UNCHANGED, *, id: str | None = None, after: str = "ask"
    ) -> Run:
        """Create a run that shares this run's records up to a step of its current turn, and continues there.

        `at` names the step as `history` and `show` do (`"refund[0]"`), or by its record's number. With
        `result`, the step has that result in the fork; without, the fork executes it again. `after` decides
        about non-resumable actions that this run did after the step, when the fork reaches them: "ask" a
        person, "reuse" their results, or "repeat" them. Calling again with the same id returns the same fork.
        Raises UsageError for a step that does not exist, or while an action is in doubt; NotSerializable;
        IdConflict.
        """
        made = await self._runtime.call(
            lambda store: forks.fork(store, self.id, at, result, id=id, after=after)
        )
        return Run(self._runtime, made.id)

    async def _row(self) -> Row:
        row: Row | None = await self._runtime.call(_read, self.id)
        if row is None:
            raise UnknownRun("there is no such run", run=self.id, remedy="Check the id")
        return row

    async def _ended(self) -> Row | Literal[True] | None:
        if self._completed is not None:
            return True
        # Just created here: the first read could only find that it has not ended.
        if self._is_expected:
            self._is_expected = False
            return None
        row = await self._row()
        self._is_over = row.state.is_final or row.state in (State.ESCALATED, State.MOVED)
        return row if self._is_over else None


def give_control(store: Any, run: str, control: Control) -> Row:
    """Give a control in the name of this process's user; if the audit log is on, that has it first.

    Raises UnknownRun; RunFinished.
    """
    from ninelives.governance.audit_log.controls import note_control

    note_control(store, control.value, run, login())
    row: Row = run_retry.retry(store, run) if control is Control.RETRY else store.control_run(run, control)
    return row


def _read(store: Store, run: str) -> Row | None:
    return store.read_run(run)


def _history(store: Store, run: str) -> list[records_text.Entry]:
    return records_text.history(large_bodies.whole(store, store.load_journal(run, since=0).records))


def _checkpoint(store: Store, run: str) -> Checkpoint:
    journal = large_bodies.load(store, run)
    # A run that was claimed only once has never been recovered: skip reading the recovery log.
    return checkpoint(journal, recoveries.last_recovery(store, run) if journal.run.epoch > 1 else "")


def _result(store: Store, row: Row) -> Any:
    if row.state is State.CANCELLED:
        raise RunCancelled("the run was cancelled", run=row.id)
    if row.state is State.MOVED:
        raise moved_away(row, "awaited")
    if row.state is State.ESCALATED:
        raise RunEscalated(
            f"the run waits {row.waits}",
            run=row.id,
            remedy="A person has to settle it: `ninelives inbox` shows the question and how to answer it",
        )
    records = large_bodies.whole(store, store.load_journal(row.id, since=row.length - 1).records)
    if not records or records[-1].kind is not Kind.END:
        has_failed = row.state is State.FAILED
        raise (RunFailed if has_failed else RunError)(
            f"the run {row.state.value}, and its {'error' if has_failed else 'result'} has been pruned",
            run=row.id,
            remedy="Read it before `ninelives store prune` removes it, or keep a copy elsewhere",
        )
    end = read_body(records[-1])
    if row.state is State.FAILED:
        cause = decode_error(bytes(end.e or b""))
        raise RunFailed(
            f"the run failed: {type(cause).__name__}: {cause}",
            run=row.id,
            remedy=f"Fix the cause, then `{shlex.join(['ninelives', 'retry', row.id])}`",
        ) from cause
    known = AGENTS.get(row.agent)
    return (known.result if known else UNTYPED_CODEC).recall(bytes(end.v or b"null"))
