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
from msgspec.structs import replace

from ninelives.core.errors import NotDone
from ninelives.core.governance.accounts import AccountOp, Requirement, Settle
from ninelives.core.governance.costs import charged_usage
from ninelives.core.governance.judged import Judged
from ninelives.core.governance.taint import NO_CHANGE
from ninelives.core.ids import generation_key
from ninelives.core.journal.replay import Attempt, StepBody, write_body
from ninelives.core.journal.settlement import Standing, advance, read_body_of_start, standing, write_start
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.counter import KEYED, ONCE
from ninelives.core.model.inbox import NewItem
from ninelives.core.model.key import DoubtKey, KeyOp, PassKey, ReleaseKey, SettleKey
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.values import blobs
from ninelives.core.values.exceptions import encode_error, same_error
from ninelives.core.values.token_usage import Usage
from ninelives.engine.commit.sealing import cipher_of, inline_bytes
from ninelives.engine.commit.ticket import Draft, Extras
from ninelives.engine.context import BRANCH, FRAME, StepPosition, WatchedFrame
from ninelives.engine.governor import Permit
from ninelives.engine.run.branch_task import current_branch, enter_body, leave_body
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import Phase
from ninelives.engine.spec import argument_changes
from ninelives.engine.spec.protection import Protection
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import gate, judging, reservations
from ninelives.engine.step.envelope import count_tokens, reader
from ninelives.engine.step.gate import GatedCall
from ninelives.engine.step.reservations import OpenReservations

T = TypeVar("T")
Function = Callable[..., Awaitable[Any]]


class KeyedPosition(StepPosition):
    """The position of an action with a business key; `nl.key()` returns that key to its body."""

    __slots__ = ("business", "generation")

    def __init__(self, business_key: str, position: StepPosition) -> None:
        self.execution, self.branch, self.name = position.execution, position.branch, position.name
        self.number, self.id = position.number, position.id
        self.business, self.generation = business_key, 0

    def key(self) -> str:
        """Return the business key, with its generation if it was released before."""
        return generation_key(self.business, self.generation)


class Ended(Struct, frozen=True):
    """The outcome of an action, its value or its error, and what the same commit records.

    `taint` is where the data of a value came from that a fork takes from its parent run.
    """

    data: bytes = b""
    error: BaseException | None = None
    before: tuple[Draft, ...] = ()
    keys: tuple[KeyOp, ...] = ()
    closes: tuple[str, ...] = ()
    taint: tuple[str, ...] = ()


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
        function: Function,
    ) -> None:
        self.execution, self.step, self.effect = execution, step, effect
        self.args, self.kwargs, self._function = args, kwargs, function
        self.fingerprint = self.key_fingerprint = step.fingerprint(args, kwargs)
        self.key = effect.key(args, kwargs) if effect.key is not None else None
        self.explicit_id = step.explicit_id(args, kwargs) if step.explicit_id is not None else None
        self.own_position = StepPosition(execution, BRANCH.get(), step.name, self.explicit_id)
        self.position = self.own_position
        self.use_key(self.key)
        self.standing = Standing()
        self.late_body: asyncio.Task[Any] | None = None
        self.frame: WatchedFrame | None = None
        self.is_cancelled = self.is_starting = self.is_waiting = False
        self.permit: Permit | None = None
        self.requires: tuple[Requirement, ...] = ()
        self.begun: Permit | None = None
        self._rewriting: Judged | None = None
        self._admitted: bytes | None = None
        self.refusals = 0
        self.branch = current_branch(execution.loop)

    def body(self) -> Awaitable[Any]:
        """Call the body with the arguments that it is to get."""
        return self._function(*self.args, **self.kwargs)

    def attempted(self) -> Awaitable[Any]:
        """Call the body of a resumable action for one attempt. Raises NotDone, UsageError."""
        frame = FRAME.get()
        self.require_unchanged(is_first=frame is None or frame.attempt == 1)
        return self.body()

    @property
    def is_under_way(self) -> bool:
        """Whether it has started and has no recorded outcome."""
        return self.is_starting or self.standing.start is not None

    def use_key(self, key: str | None) -> None:
        """Use a business key or, with None, the key of the position."""
        self.key = key
        self.position = self.own_position if key is None else KeyedPosition(key, self.own_position)

    def load_standing(self) -> None:
        """Read the standing of the action from the records of earlier executions."""
        records = self.execution.replay.starts(self.position.id)
        if records:
            self.standing = standing(records)

    def keep_body(self, late: asyncio.Task[Any]) -> None:
        """Keep a body that still runs after its time limit; until it ends, the run stays in memory."""
        self.late_body = late
        late.add_done_callback(lambda _: self.execution.wake_waits())
        enter_body(self.branch, self.execution)

    def drop_body(self) -> None:
        """Release a body that was kept."""
        self.late_body = None
        leave_body(self.branch)

    async def despite_cancellation(self, make: Callable[[], Awaitable[T]], *, waits: bool = False) -> T:
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
        if self.execution.sealed is not None:
            await self.execution.forever()
        written = self.execution.commit_here(drafts, extras)
        if isinstance(written, Verdict):
            if self.execution.sealed is not None:  # by a refusal
                await self.execution.forever()
            return written
        # Shielded: `durable` cancels what it awaits, and each new try must wait for the same commit.
        return await self.despite_cancellation(lambda: self.execution.durable(asyncio.shield(written)))

    def draft(self, kind: Kind, **known: Any) -> Draft:
        """Return a record of a start."""
        body = write_start(self.fingerprint, k=self.key or "", **known)
        return (kind, self.position.id, body, (), Facts(self.step.kind))

    def begin(self) -> WatchedFrame:
        """Create the frame of a body that begins now."""
        began_ms = self.execution.clock.boot_ms()
        self.frame = frame = WatchedFrame(self.position, self.fingerprint, self.step.kind, began_ms)
        frame.at = self.execution.loop.time()
        frame.taint = self.step.taint
        return frame

    def _facts(self, error: BaseException | None = None, usage: Usage | None = None) -> Facts:
        took = None
        if self.frame is not None:
            took = max(0, int((self.execution.loop.time() - self.frame.at) * 1000))
        read, written = count_tokens(self.execution, usage)
        return Facts(self.step.kind, took, read, written, error_text(error) if error is not None else "")

    async def record(
        self,
        kind: Kind,
        keys: tuple[KeyOp, ...] = (),
        opens: tuple[NewItem, ...] = (),
        before: tuple[Draft, ...] = (),
        requires: tuple[Requirement, ...] = (),
        accounts: tuple[AccountOp, ...] = (),
        **known: Any,
    ) -> Verdict:
        """Write a record about a start, and advance the action's standing once it is committed."""
        draft = self.draft(kind, **known)
        # Before the verdict: the intent may be durable already, and an ending run must wait for this action.
        self.is_starting = kind is Kind.INTENT
        if kind is Kind.VOIDED:
            accounts = (*accounts, *self.settled(NotDone("it was voided")))
        extras = Extras(keys=keys, opens=opens, is_effect=True, requires=requires, accounts=accounts)
        try:
            verdict = await self.write([*before, draft], extras)
        finally:
            self.is_starting = False
        if verdict.outcome is Outcome.COMMITTED:
            self.standing = advance(self.standing, kind, read_body_of_start(draft[2]))
        return verdict

    async def conclude(self, ended: Ended) -> Any:
        """Record the outcome of the action; return or raise it when its delivery is due."""
        drafts, extras, error = self._outcome(ended)
        self.drop_body()
        try:
            # The slot is reserved and the record written without an await between them: both have one order.
            await self.execution.delivery.settle(self._written(drafts, extras))
        except asyncio.CancelledError:
            # The outcome stands; a record after it says that the code got a cancellation instead.
            self.execution.note(Kind.WITHDRAWN, self.position.id, write_body(self.fingerprint), self._facts())
            raise
        self.execution.counts.executed += 1
        self.execution.done[KEYED if self.key is not None else ONCE] += 1
        if error is not None:
            raise error
        return reader(self.step)(ended.data)

    async def _written(self, drafts: Sequence[Draft], extras: Extras) -> Verdict:
        # CRASH: the outcome is known and not durable: the next worker finds the start and settles it.
        verdict = await self.write(drafts, extras)
        if verdict.outcome is Outcome.STALE:  # its item was answered just now: the outcome counts
            verdict = await self.write(drafts, Extras(keys=extras.keys, accounts=extras.accounts))
        if self.is_cancelled:
            raise asyncio.CancelledError  # the run's code cancelled it earlier
        return verdict

    def _outcome(self, ended: Ended) -> tuple[list[Draft], Extras, BaseException | None]:
        accounts, said = self.settled(ended.error or ended.data), None
        if self.permit is not None and self.permit.judged is not None:
            # It did not begin: another run has done it. This is its first record, and nothing was reserved.
            said = replace(self.permit.judged, held={})
        taint = self.frame.taint if self.frame is not None else self.step.taint
        if ended.taint:
            taint = (taint or NO_CHANGE).with_labels(ended.taint)
        if taint is not None:
            self.execution.replay.taint.apply(taint)
        charged = self.frame.charged if self.frame is not None else None
        usage = charged_usage(charged) if charged is not None else None
        given: dict[str, Any] = {"attempts": self._failures, "judged": said, "taint": taint, "usage": usage}
        if ended.error is not None:
            error = same_error(ended.error, self.step.raises)
            encoded = encode_error(error, raises=self.step.raises)
            body = write_body(self.fingerprint, error=encoded, **given)
            failure: Draft = (Kind.FAILURE, self.position.id, body, (), self._facts(error, usage))
            extras = Extras(keys=ended.keys, closes=ended.closes, accounts=accounts)
            return [*ended.before, failure], extras, error
        body = write_body(self.fingerprint, value=ended.data, **given)
        is_shared = any(isinstance(op, SettleKey) and op.blobs for op in ended.keys)
        # The key's row refers to the value alone, as a blob, which is stored with this record.
        spilled = [ended.data] if is_shared else []
        result: Draft = (Kind.RESULT, self.position.id, body, spilled, self._facts(None, usage))
        extras = Extras(keys=ended.keys, closes=ended.closes, accounts=accounts)
        return [*ended.before, result], extras, None

    @property
    def _failures(self) -> tuple[Attempt, ...]:
        return self.frame.failures if self.frame is not None else ()

    # What governs it ----------------------------------------------------------------------------

    def gated(self) -> GatedCall:
        """Return the call as the gate takes it. Once rewritten, its arguments stay: its key may be in use."""
        return GatedCall(
            execution=self.execution,
            step=self.step,
            fingerprint=self.fingerprint,
            position=self.position,
            args=self.args,
            kwargs=self.kwargs,
            key=self.position.key(),
            keeps=self._rewriting,
            is_settled=not self.effect.resumable,
        )

    def permitted(self, permit: Permit | None) -> None:
        """Note that the call may begin, and with which arguments."""
        self.permit = permit
        said = permit.judged if permit is not None else None
        if permit is not None and said is not None and said.args and self._rewriting is None:
            self._rewrite(said, permit.args, permit.kwargs)
        if permit is not None:
            self._admitted = permit.digest

    def admitted(self) -> None:
        """Note the arguments that a person has approved. Call it when that has just been decided."""
        self._admitted = None
        if self.key_fingerprint.plain is None:  # else there is nothing in them that could be changed
            self._admitted = self.step.fingerprint(self.args, self.kwargs).digest

    def require_unchanged(self, *, is_first: bool = True) -> None:
        """Refuse to begin with other arguments than were judged. Raises NotDone; see `require_same`."""
        if self._admitted is not None:
            argument_changes.require_same(
                self.step, self.args, self.kwargs, self._admitted, self.execution.lists, is_first=is_first
            )

    def resume(self, start: StepBody) -> None:
        """Take the arguments with which an earlier execution started the call, if a policy rewrote them."""
        said = start.j
        if said is not None and said.args and self._rewriting is None:
            changes = judging.decode(self.step, said.args)
            self._rewrite(said, *judging.with_changes(self.step, self.args, self.kwargs, changes))

    def _rewrite(self, said: Judged, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._rewriting, self.args, self.kwargs = said, args, kwargs
        # Records keep the fingerprint of the call as the code makes it: so a replay finds them.
        self.key_fingerprint = self.step.fingerprint(args, kwargs)
        if self.key is not None and self.effect.key is not None:
            self.use_key(self.effect.key(args, kwargs))

    def judged(self) -> Judged | None:
        """Return how the call was judged, for the record of its start."""
        return self.permit.judged if self.permit is not None else None

    def began(self) -> None:
        """Note that the start is durable: another start must be judged again."""
        self.begun, self.permit, self.refusals = self.permit, None, 0
        if self.begun is not None:
            self.execution.component(OpenReservations).set(self.position.id, self.begun.reserves)

    def settled(self, outcome: bytes | BaseException | None) -> tuple[Settle, ...]:
        """Report how the start ended; return how its commit settles what the start reserved.

        `outcome` is as in `Governor.settles`.
        """
        begun, self.begun = self.begun, None
        reserves = OpenReservations.take(self.execution, self.position.id)
        if begun is not None:
            error = outcome if isinstance(outcome, BaseException) else None
            reservations.ended(self.execution, self.step, begun.call, error)
            return reservations.settles(
                self.execution, self.step, begun.call, reserves, outcome, self.frame, begun.exceeds
            )
        if not reserves:
            return ()
        return reservations.settles(
            self.execution, self.step, gate.call_of(self.gated()), reserves, outcome, self.frame
        )

    # Its business key ---------------------------------------------------------------------------

    def settles(self, data: bytes) -> tuple[KeyOp, ...]:
        """Return the key operation that stores the result under the key, for all runs."""
        if self.key is None:
            return ()
        if len(data) > inline_bytes(self.execution.store):
            cipher = cipher_of(self.execution.store)
            return (SettleKey(self.key, b"", (blobs.digest(data if cipher is None else cipher.blob(data)),)),)
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
