"""One call of an action that is not to be repeated blindly, or that has a business key.

Once such an action is under way, its outcome matters more than the hurry of who called it: a cancellation by
the run's own code is held back until the outcome is recorded, and told then, on first execution and on
replay alike. Only a sealed execution breaks it off; what it had started is then in doubt.
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
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import BranchTask, Execution
from ninelives.engine.spec.protection import Protection
from ninelives.engine.spec.registry import Step

T = TypeVar("T")
Body = Callable[[], Awaitable[Any]]


class KeyedPosition(StepPosition):
    """The place of an action with a business key, which it hands to its body."""

    __slots__ = ("business", "generation")

    def __init__(self, act_key: str, place: StepPosition) -> None:
        self.execution, self.branch, self.name = execution_of(place), place.branch, place.name
        self.number, self.id = place.number, place.id
        self.business, self.generation = act_key, 0

    def key(self) -> str:
        """Return the business key, with its generation where it was released before."""
        return generation_key(self.business, self.generation)


class Ended(Struct, frozen=True):
    """How an action came out: its value or its error; what is recorded with it."""

    data: bytes = b""
    error: BaseException | None = None
    before: tuple[Draft, ...] = ()
    keys: tuple[KeyOp, ...] = ()
    closes: tuple[str, ...] = ()


class ProtectedCall:
    """A call, where it stands, and what it writes."""

    is_wanted = True
    """Whether the code asks for it; else it is only settled (`engine.leftovers`)."""

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
        self.asked = step.fingerprint(args, kwargs)
        self.key = effect.key(args, kwargs) if effect.key is not None else None
        self.given = step.given(args, kwargs) if step.given is not None else None
        self.natural = StepPosition(execution, BRANCH.get(), step.name, self.given)
        self.place = self.natural
        self.use_key(self.key)
        self.standing = Standing()
        self.late: asyncio.Task[Any] | None = None
        self.frame: WatchedFrame | None = None
        self.is_cancelled = self.is_starting = self.is_waiting = False
        task = asyncio.current_task(execution.loop)
        self.branch = task if isinstance(task, BranchTask) else None

    @property
    def is_under_way(self) -> bool:
        """Tell whether it has started, and what came of that is not on record."""
        return self.is_starting or self.standing.start is not None

    def use_key(self, key: str | None) -> None:
        """Go on under a business key, or under the key of the place."""
        self.key = key
        self.place = self.natural if key is None else KeyedPosition(key, self.natural)

    def recall(self) -> None:
        """Read where the action stands from what earlier lives recorded."""
        records = self.execution.replay.starts(self.place.id)
        if records:
            self.standing = standing(records)

    def keep(self, late: asyncio.Task[Any]) -> None:
        """Keep a body that runs on after its time: as long as it does, the run stays in memory."""
        self.late = late
        late.add_done_callback(self._look_again)
        if self.branch is not None:
            self.branch.body_of = self.execution

    def drop(self) -> None:
        """Let go of a body that was kept."""
        self.late = None
        if self.branch is not None:
            self.branch.body_of = None
            self.execution.delivery.is_out(self.branch)

    def _look_again(self, _: object) -> None:
        if self.execution.waits is not None:
            self.execution.waits.hear()

    async def patiently(self, make: Callable[[], Awaitable[T]], *, waits: bool = False) -> T:
        """Await something, again if the run's code cancels it: that is told with the outcome.

        What only `waits` for news does not hold up a run that is itself being cancelled.
        """
        execution = self.execution
        while True:
            try:
                return await make()
            except asyncio.CancelledError:
                if execution.sealed is not None or execution.is_leaving:
                    raise
                if waits and execution.stopped is not None:
                    raise
                self.is_cancelled = True

    async def write(self, drafts: Sequence[Draft], extras: Extras) -> Verdict:
        """Write records and wait until they are durable, or refused."""
        await self.execution.require_open()
        written = self.execution.write(drafts, extras)
        return await self.patiently(lambda: self.execution.durable(asyncio.shield(written)))

    def draft(self, kind: Kind, **known: Any) -> Draft:
        """Return a record of a start."""
        body = write_start(self.asked, k=self.key or "", **known)
        return (kind, self.place.id, body, (), Facts(self.step.kind))

    def begin(self) -> WatchedFrame:
        """Return the frame of a body that begins now."""
        began_ms = self.execution.clock.boot_ms()
        self.frame = frame = WatchedFrame(self.place, self.asked, self.step.kind, began_ms)
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
        """Record something about a start; where the action stands changes with it."""
        draft = self.draft(kind, **known)
        self.is_starting = kind is Kind.INTENT
        try:
            verdict = await self.write([*before, draft], Extras(keys=keys, opens=opens, is_effect=True))
        finally:
            self.is_starting = False
        if verdict.outcome is Outcome.COMMITTED:
            self.standing = advance(self.standing, kind, read_body_of_start(draft[2]))
        return verdict

    async def tell(self, ended: Ended) -> Any:
        """Record how the action came out, and return or raise it in its turn."""
        drafts, extras, told = self._outcome(ended)
        delivery = self.execution.delivery
        self.drop()
        turn = delivery.reserve()
        try:
            verdict = await self.write(drafts, extras)
            if verdict.outcome is Outcome.STALE:  # answered at this very moment: what happened counts
                await self.write(drafts, Extras(keys=extras.keys))
            if self.is_cancelled:
                raise asyncio.CancelledError  # noqa: TRY301 (the run's code withdrew it long ago)
            await delivery.live(turn)
        except BaseException as error:
            turn.withdraw()
            delivery.look()
            if isinstance(error, asyncio.CancelledError):
                # What it came to stands; that the code was told otherwise is on record beside it.
                self.execution.note(Kind.WITHDRAWN, self.place.id, write_body(self.asked), self._facts())
            raise
        self.execution.executed += 1
        if told is not None:
            raise told
        return self.step.codec.recall(ended.data)

    def _outcome(self, ended: Ended) -> tuple[list[Draft], Extras, BaseException | None]:
        if ended.error is not None:
            told = same_error(ended.error, self.step.raises)
            error = encode_error(told, raises=self.step.raises)
            body = write_body(self.asked, error=error, attempts=self._failures)
            failure: Draft = (Kind.FAILURE, self.place.id, body, (), self._facts(told))
            return [*ended.before, failure], Extras(keys=ended.keys, closes=ended.closes), told
        body = write_body(self.asked, value=ended.data, attempts=self._failures)
        large = len(ended.data) > INLINE_BYTES
        shares = any(isinstance(op, SettleKey) for op in ended.keys)
        spilled = [ended.data] if large and shares else []
        result: Draft = (Kind.RESULT, self.place.id, body, spilled, self._facts())
        return [*ended.before, result], Extras(keys=ended.keys, closes=ended.closes), None

    @property
    def _failures(self) -> tuple[Attempt, ...]:
        return self.frame.failures if self.frame is not None else ()

    # Its business key ---------------------------------------------------------------------------

    def settles(self, data: bytes) -> tuple[KeyOp, ...]:
        """Return what keeps the result under the key, for all who ask."""
        if self.key is None:
            return ()
        if len(data) > INLINE_BYTES:
            return (SettleKey(self.key, b"", (blobs.digest(data),)),)
        return (SettleKey(self.key, data),)

    def releases(self) -> tuple[KeyOp, ...]:
        """Return what frees the key for its next generation: proven not done."""
        return (ReleaseKey(self.key),) if self.key is not None else ()

    def passes(self) -> tuple[KeyOp, ...]:
        """Return what frees the key of a resumable action that failed: it may be tried again under it."""
        return (PassKey(self.key),) if self.key is not None else ()

    def doubts(self) -> tuple[KeyOp, ...]:
        """Return what marks the key as in doubt."""
        return (DoubtKey(self.key),) if self.key is not None else ()
