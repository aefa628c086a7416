"""One call of a protected action: non-resumable, or with a business key.

Once such an action is under way, its outcome matters more than a fast cancellation: when the run's code
cancels it, CancelledError is raised only after the outcome is recorded, on first execution and on replay
alike. Only a sealed execution interrupts it; its start is then in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from ninelives.core.ids import generation_key
from ninelives.core.journal.replay import Attempt, write_body
from ninelives.core.journal.settlement import Standing, advance, read_body_of_start, standing, write_start
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.inbox import NewItem
from ninelives.core.model.key import DoubtKey, KeyOp, PassKey, ReleaseKey, SettleKey
from ninelives.core.model.run import INLINE_BYTES, Kind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.values import blobs
from ninelives.core.values.exceptions import encode_error, same_error
from ninelives.engine.commit.ticket import Draft, Extras
from ninelives.engine.context import BRANCH, StepPosition, WatchedFrame
from ninelives.engine.run.branch_task import current_branch, enter_body, leave_body
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import Phase
from ninelives.engine.spec.protection import Protection
from ninelives.engine.spec.registry import Step
from ninelives.engine.step.envelope import reader

T = TypeVar("T")
Body = Callable[[], Awaitable[Any]]


class KeyedPosition(StepPosition):
    """The position of an action with a business key; `nl.key()` returns that key to its body."""

    __slots__ = ("business", "generation")

    def __init__(self, act_key: str, position: StepPosition) -> None:
        self.execution, self.branch, self.name = execution_of(position), position.branch, position.name
        self.number, self.id = position.number, position.id
        self.business, self.generation = act_key, 0

    def key(self) -> str:
        """Return the business key, with its generation if it was released before."""
        return generation_key(self.business, self.generation)


class Ended(Struct, frozen=True):
    """The outcome of an action, its value or its error, and what the same commit records."""

    data: bytes = b""
    error: BaseException | None = None
    before: tuple[Draft, ...] = ()
    keys: tuple[KeyOp, ...] = ()
    closes: tuple[str, ...] = ()


class ProtectedCall:
    """A call, the standing of its starts, and the records that it writes."""

    is_wanted = True
    """Whether the code makes the call; else its start is only settled (`engine.protected.open_starts`)."""

    def __init__(
        self,
        execution: Execution,
        step: Step,
        effect: Protection,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        body: Body,
    ) -> None:
        self.execution, self.step, self.effect = execution, step, effect
        self.args, self.kwargs, self.body = args, kwargs, body
        self.fingerprint = step.fingerprint(args, kwargs)
        self.key = effect.key(args, kwargs) if effect.key is not None else None
        self.given = step.given(args, kwargs) if step.given is not None else None
        self.natural = StepPosition(execution, BRANCH.get(), step.name, self.given)
        self.position = self.natural
        self.use_key(self.key)
        self.standing = Standing()
        self.late: asyncio.Task[Any] | None = None
        self.frame: WatchedFrame | None = None
        self.is_cancelled = self.is_starting = self.is_waiting = False
        self.branch = current_branch(execution.loop)

    @property
    def is_under_way(self) -> bool:
        """Whether it has started and has no recorded outcome."""
        return self.is_starting or self.standing.start is not None

    def use_key(self, key: str | None) -> None:
        """Use a business key or, with None, the key of the position."""
        self.key = key
        self.position = self.natural if key is None else KeyedPosition(key, self.natural)

    def recall(self) -> None:
        """Read the standing of the action from the records of earlier executions."""
        records = self.execution.replay.starts(self.position.id)
        if records:
            self.standing = standing(records)

    def keep(self, late: asyncio.Task[Any]) -> None:
        """Keep a body that still runs after its time limit; until it ends, the run stays in memory."""
        self.late = late
        late.add_done_callback(lambda _: self.execution.wake_waits())
        enter_body(self.branch, self.execution)

    def drop(self) -> None:
        """Release a body that was kept."""
        self.late = None
        leave_body(self.branch)

    async def patiently(self, make: Callable[[], Awaitable[T]], *, waits: bool = False) -> T:
        """Retry an await that the run's code cancels; `conclude` raises the cancellation after the outcome.

        With `waits=True` the await only waits for news: it gives up if the run itself is being cancelled.
        """
        execution = self.execution
        while True:
            try:
                return await make()
            except asyncio.CancelledError:
                # No outcome can be recorded here any more: the next worker finds the start and settles it.
                if execution.phase & (Phase.SEALED | Phase.LEAVING):
                    raise
                # A doubt may take days: a run that is being cancelled does not wait for it.
                if waits and execution.stopped is not None:
                    raise
                self.is_cancelled = True

    async def write(self, drafts: Sequence[Draft], extras: Extras) -> Verdict:
        """Write records and wait until they are durable, or refused."""
        await self.execution.require_open()
        written = self.execution.commit_here(drafts, extras)
        if isinstance(written, Verdict):
            await self.execution.require_open()  # a refusal may have sealed it
            return written
        # Shielded: `durable` cancels what it awaits, and each new try must wait for the same commit.
        return await self.patiently(lambda: self.execution.durable(asyncio.shield(written)))

    def draft(self, kind: Kind, **known: Any) -> Draft:
        """Return a record of a start."""
        body = write_start(self.fingerprint, k=self.key or "", **known)
        return (kind, self.position.id, body, (), Facts(self.step.kind))

    def begin(self) -> WatchedFrame:
        """Create the frame of a body that begins now."""
        began_ms = self.execution.clock.boot_ms()
        self.frame = frame = WatchedFrame(self.position, self.fingerprint, self.step.kind, began_ms)
        frame.at = self.execution.loop.time()
        return frame

    def _facts(self, error: BaseException | None = None) -> Facts:
        took = None
        if self.frame is not None:
            took = max(0, int((self.execution.loop.time() - self.frame.at) * 1000))
        return Facts(self.step.kind, took, error=error_text(error) if error is not None else "")

    async def record(
        self,
        kind: Kind,
        keys: tuple[KeyOp, ...] = (),
        opens: tuple[NewItem, ...] = (),
        before: tuple[Draft, ...] = (),
        **known: Any,
    ) -> Verdict:
        """Write a record about a start, and advance the action's standing once it is committed."""
        draft = self.draft(kind, **known)
        # Before the verdict: the intent may be durable already, and an ending run must wait for this action.
        self.is_starting = kind is Kind.INTENT
        try:
            verdict = await self.write([*before, draft], Extras(keys=keys, opens=opens, is_effect=True))
        finally:
            self.is_starting = False
        if verdict.outcome is Outcome.COMMITTED:
            self.standing = advance(self.standing, kind, read_body_of_start(draft[2]))
        return verdict

    async def conclude(self, ended: Ended) -> Any:
        """Record the outcome of the action; return or raise it when its delivery is due."""
        drafts, extras, error = self._outcome(ended)
        self.drop()
        try:
            # The slot is reserved and the record written without an await between them: both have one order.
            await self.execution.delivery.settle(self._written(drafts, extras))
        except asyncio.CancelledError:
            # The outcome stands; a record after it says that the code got a cancellation instead.
            self.execution.note(Kind.WITHDRAWN, self.position.id, write_body(self.fingerprint), self._facts())
            raise
        self.execution.counts.executed += 1
        if error is not None:
            raise error
        return reader(self.step)(ended.data)

    async def _written(self, drafts: Sequence[Draft], extras: Extras) -> Verdict:
        # CRASH: the outcome is known and not durable: the next worker finds the start and settles it.
        verdict = await self.write(drafts, extras)
        if verdict.outcome is Outcome.STALE:  # its item was answered just now: the outcome counts
            verdict = await self.write(drafts, Extras(keys=extras.keys))
        if self.is_cancelled:
            raise asyncio.CancelledError  # the run's code cancelled it earlier
        return verdict

    def _outcome(self, ended: Ended) -> tuple[list[Draft], Extras, BaseException | None]:
        if ended.error is not None:
            error = same_error(ended.error, self.step.raises)
            encoded = encode_error(error, raises=self.step.raises)
            body = write_body(self.fingerprint, error=encoded, attempts=self._failures)
            failure: Draft = (Kind.FAILURE, self.position.id, body, (), self._facts(error))
            return [*ended.before, failure], Extras(keys=ended.keys, closes=ended.closes), error
        body = write_body(self.fingerprint, value=ended.data, attempts=self._failures)
        large = len(ended.data) > INLINE_BYTES
        shares = any(isinstance(op, SettleKey) for op in ended.keys)
        # The key's row refers to the value alone, as a blob, which is stored with this record.
        spilled = [ended.data] if large and shares else []
        result: Draft = (Kind.RESULT, self.position.id, body, spilled, self._facts())
        return [*ended.before, result], Extras(keys=ended.keys, closes=ended.closes), None

    @property
    def _failures(self) -> tuple[Attempt, ...]:
        return self.frame.failures if self.frame is not None else ()

    # Its business key ---------------------------------------------------------------------------

    def settles(self, data: bytes) -> tuple[KeyOp, ...]:
        """Return the key operation that stores the result under the key, for all runs."""
        if self.key is None:
            return ()
        if len(data) > INLINE_BYTES:
            return (SettleKey(self.key, b"", (blobs.digest(data),)),)
        return (SettleKey(self.key, data),)

    def releases(self) -> tuple[KeyOp, ...]:
        """Return the key operation that frees the key for its next generation: proven not done."""
        return (ReleaseKey(self.key),) if self.key is not None else ()

    def passes(self) -> tuple[KeyOp, ...]:
        """Return the key operation that frees the key of a failed resumable action, for another try."""
        return (PassKey(self.key),) if self.key is not None else ()

    def doubts(self) -> tuple[KeyOp, ...]:
        """Return the key operation that marks the key as in doubt."""
        return (DoubtKey(self.key),) if self.key is not None else ()
