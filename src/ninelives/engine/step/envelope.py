"""What all steps have in common: how a recorded outcome comes back, and how a fresh one goes out.

A call searches for its record (`run.identity`). If there is one, `deliver` waits until it is next in the
journal's order, and returns or raises it. Else the call waits until something new may begin
(`run.waits.ready`), runs its body (`run.branch_task.enter_body`, `leave_body`), records the outcome and waits
until it is durable and next (`run.delivery.Delivery.settle`). `Builtin` does all of that for the steps of
`nl` itself. If we die anywhere here, the next worker makes the same call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, Self, TypeVar

from msgspec import UNSET, Struct

from ninelives.core.errors import Divergence, UsageError
from ninelives.core.governance.accounts import AccountOp
from ninelives.core.governance.costs import charged_usage
from ninelives.core.governance.taint import TaintChange
from ninelives.core.journal.matching import Claimed
from ninelives.core.journal.replay import Recorded, signal_number, write_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.counter import TOKENS_IN, TOKENS_OUT
from ninelives.core.model.run import Kind, StepKind
from ninelives.core.model.totals import OUTCOMES, Facts, error_text
from ninelives.core.values.codec import UNTYPED_CODEC, Codec
from ninelives.core.values.exceptions import decode_error, encode_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.core.values.token_usage import Usage, usage_in
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, charging
from ninelives.engine.context import Frame, Running, StepPosition
from ninelives.engine.run import identity
from ninelives.engine.run.branch_task import BranchTask, current_branch
from ninelives.engine.run.current import caller
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.waits import await_cancellation, refresh, turn_away
from ninelives.engine.spec.callbacks import call_plain
from ninelives.engine.spec.registry import Step

T = TypeVar("T")
Read = Callable[[bytes], Any]
"""Decodes a recorded value. Raises Divergence when it no longer fits."""


class CancelHeld(Protocol):
    """A call whose cancellation by the run's code is held back until its outcome is due."""

    is_cancelled: bool

    async def despite_cancellation(self, make: Callable[[], Awaitable[T]], /) -> T:
        """Await something, again after each cancellation by the run's code."""


async def deliver(
    execution: Execution,
    found: Recorded,
    read: Read | None,
    *,
    step: Step | None = None,
    held: CancelHeld | None = None,
) -> Any:
    """Return or raise a recorded outcome when its delivery is due.

    A withdrawn step waits until the run's code cancels it again. `held`: the code cancelled the call after it
    had started; it gets the cancellation instead of the outcome.
    """
    is_withdrawn = found.kind is Kind.WITHDRAWN
    if held is not None:
        # A cancellation is held back until the outcome is due, as on the first execution.
        await held.despite_cancellation(lambda: execution.delivery.recorded(found))
    elif not is_withdrawn:
        await execution.delivery.recorded(found)
    # What cancelled it the first time cancels it again; a cancellation that is held back has come already.
    if is_withdrawn and (held is None or not held.is_cancelled):
        await await_cancellation(execution, found)
    if step is None:
        execution.counts.replayed += 1
    elif not is_withdrawn:
        execution.count(step, found)
    if held is not None and held.is_cancelled:
        raise asyncio.CancelledError
    try:
        if found.kind is not Kind.FAILURE:
            return read(bytes(found.body.v or b"null")) if read is not None else None
        error = decode_error(bytes(found.body.e or b""), raises=step.raises if step is not None else ())
    except Divergence as misfit:
        await _diverge(execution, misfit, found.step, step)
    raise error


async def decoded(execution: Execution, at: str, read: Read, data: bytes) -> Any:
    """Decode a recorded value; one that no longer fits is a divergence, which seals the execution."""
    try:
        return read(data)
    except Divergence as misfit:
        return await _diverge(execution, misfit, at, None)


async def _diverge(execution: Execution, error: Divergence, at: str, step: Step | None) -> None:
    error.run, error.step = execution.run.id, at
    if step is not None:
        error.what += f", called at {caller() or step.where}"
    # Sealed, not raised: the run's code could catch the error and go on with a wrong value.
    execution.seal(error)
    await execution.forever()


def reader(step: Step) -> Read:
    """Return the function that decodes a step's recorded values; with `upgrade=`, also old ones."""
    return partial(_recalled, step) if step.upgrade is None else partial(_upgraded, step, step.upgrade)


def _recalled(step: Step, data: bytes) -> Any:
    try:
        return step.codec.recall(data)
    except Divergence as error:
        either = error.remedy or "Restore the type"
        error.remedy = f"Give the step upgrade= to map old values, or {either[0].lower()}{either[1:]}"
        raise


def _upgraded(step: Step, upgrade: Callable[[Any], Any], data: bytes) -> Any:
    try:
        # Validated: a value that its class refuses is an old one, which the function maps.
        return step.codec.decode(data, is_whole=True)
    except Divergence:
        return step.codec.round(call_plain("upgrade=", upgrade, UNTYPED_CODEC.decode(data)))[1]


def _reader_of(found: Recorded, codec: Codec) -> Read:
    """Return the function that decodes the outcome of a step of `nl`."""
    if found.body.r is not UNSET:
        received = bytes(found.body.r)
        return lambda _: codec.recall(received)
    # A signal is read as it was sent: it may have keys that no field claims.
    return codec.recall if signal_number(found) < 0 else partial(codec.recall, is_whole=False)


def refuse_foreign_timer(branch: BranchTask | None, position: StepPosition, what: str = "step") -> None:
    """Raise UsageError if a timer of asyncio, which replay cannot repeat, has just ended a step."""
    if branch is not None and branch.foreign_timer is not None and position.execution.sealed is None:
        raise UsageError(
            f"{branch.foreign_timer} ended this {what}, and would not do so on replay",
            run=position.execution.run.id,
            step=position.id,
            remedy="Use nl.timeout: it records which came first",
        ) from None


class FoundOutcome(Struct, frozen=True):
    """A recorded outcome's value."""

    value: Any


class Builtin:
    """A built-in step that waits: found in the journal, or waited for, recorded and delivered in order.

        step = Builtin(execution, "sleep")
        found = await step.recorded()
        if found is None:
            ...
            await step.settle([(Kind.RESULT, step.id, write_body(None, value=b"null"))])

    Use it as `async with`: a wait that the run's code cancels is recorded as withdrawn, even if its outcome
    is already recorded but not delivered (see docs/decisions/0016). An asyncio timer that ends it raises
    UsageError, because replay cannot repeat it.
    """

    def __init__(
        self,
        execution: Execution,
        name: str,
        position: StepPosition | None = None,
        shown: dict[str, str] | None = None,
    ) -> None:
        self.execution, self.position = execution, position or execution.next_position(name)
        self.shown = shown
        self._is_withdrawn = False
        self._fingerprint: Fingerprint | None = None
        self.taint: TaintChange | None = None
        self._began = execution.loop.time()
        self._branch = current_branch(execution.loop)

    @property
    def id(self) -> str:
        """Return the step's id in the journal."""
        return self.position.id

    async def __aenter__(self) -> Self:
        if self._branch is not None:
            self._branch.foreign_timer = None
        if self.execution.phase is not OPEN:
            await turn_away(self.execution)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        # A sealed execution cancels its tasks: that is no withdrawal by the run's code.
        if not isinstance(error, asyncio.CancelledError) or self.execution.sealed is not None:
            return
        if not self._is_withdrawn:  # recorded before we raise: on replay it waits for the same cancellation
            self.execution.note(Kind.WITHDRAWN, self.id, self._body(), self._facts)
        refuse_foreign_timer(self._branch, self.position, "wait")

    async def recorded(
        self,
        codec: Codec | None = None,
        *,
        fingerprint: Fingerprint | None = None,
        is_effect: bool = False,
        child: str | None = None,
    ) -> FoundOutcome | None:
        """Return the outcome from the journal, when its delivery is due; None when there is none.

        Raises the recorded error of a failure. With a codec, `value` is decoded; a value that no longer fits
        is a divergence, which seals the execution. With `is_effect`, None means that the effect may start.
        """
        execution, self._fingerprint = self.execution, fingerprint
        found: Claimed | None = None
        if execution.may_have_record(self.id):
            found = await identity.find(
                StepLookup(
                    execution,
                    self.position,
                    fingerprint,
                    where=self._call_site,
                    is_effect=is_effect,
                    child=child,
                    shown=self.shown,
                )
            )
        if not isinstance(found, Recorded):
            return None
        # Nothing new to record: it is withdrawn again, or gets its recorded outcome in the same order.
        self._is_withdrawn = True
        read = _reader_of(found, codec) if codec is not None else None
        try:
            return FoundOutcome(await deliver(execution, found, read))
        except asyncio.CancelledError:
            # A signal was taken, and the earlier worker died before it could record the withdrawal.
            if found.kind is not Kind.WITHDRAWN:
                self._is_withdrawn = signal_number(found) < 0
                self.give_back(found)
            raise

    def _call_site(self) -> str:
        return caller() or f"nl.{self.position.name}()"

    async def value(self, codec: Codec, data: bytes) -> Any:
        """Decode an outcome; a value that no longer fits is a divergence, which seals the execution."""
        return await decoded(self.execution, self.id, codec.recall, data)

    async def settle(self, drafts: Sequence[Draft], extras: Extras = NO_EXTRAS) -> bool:
        """Record an outcome and wait until it may be delivered.

        Returns False if nothing was recorded (STALE, HELD): the news was read again, and the caller must
        check it. When cancelled between record and delivery, `__aexit__` appends the withdrawal.
        """
        execution = self.execution
        await execution.require_open()
        written = execution.write([self._named(draft) for draft in drafts], extras)
        verdict = await execution.delivery.settle(execution.durable(written))
        if verdict is None or verdict.outcome is Outcome.COMMITTED:
            execution.counts.executed += 1
            return True
        # What made the commit stale is news that we have not seen: without it the next check finds the same.
        await refresh(execution)
        return False

    async def returns(self, data: bytes, accounts: tuple[AccountOp, ...] = ()) -> None:
        """Record a value as the outcome, and wait until it may be delivered."""
        await self._ended((Kind.RESULT, self.id, self._body(data)), accounts)

    async def raises(self, error: Exception, accounts: tuple[AccountOp, ...] = ()) -> NoReturn:
        """Record an error as the outcome, and raise it when it may be delivered."""
        body = write_body(self._fingerprint, error=encode_error(error), taint=self.taint)
        await self._ended((Kind.FAILURE, self.id, body), accounts)
        raise error

    async def _ended(self, draft: Draft, accounts: tuple[AccountOp, ...]) -> None:
        if self.taint is not None:
            self.execution.replay.taint.apply(self.taint)
        await self.settle([draft], charging(accounts))

    def _body(self, data: bytes | None = None) -> bytes:
        return write_body(self._fingerprint, value=data, shown=self.shown, taint=self.taint)

    def give_back(self, taken: Recorded) -> None:
        """Keep a signal that was taken but not delivered, for the next step that receives one."""
        number, execution = signal_number(taken), self.execution
        if number >= 0 and execution.sealed is None:
            execution.replay.returned[number] = taken
            # Another branch may already wait for a signal of this name.
            execution.wake_waits()

    @property
    def _facts(self) -> Facts:
        return Facts(StepKind.BUILTIN, max(0, int((self.execution.loop.time() - self._began) * 1000)))

    def _named(self, draft: Draft) -> Draft:
        """Return an outcome record of this step with its facts added, unless it has them."""
        if draft[1] != self.id or draft[0] not in OUTCOMES or len(draft) == 5:
            return draft
        return (*draft[:3], draft[3] if len(draft) == 4 else (), self._facts)


# The records of outcomes ----------------------------------------------------------------------------


def withdrawn(position: StepPosition, fingerprint: Fingerprint, kind: StepKind = StepKind.ACTION) -> Draft:
    """Return the record of a step that the run's code cancelled."""
    return (Kind.WITHDRAWN, position.id, write_body(fingerprint), (), Facts(kind))


def took_ms(frame: Frame) -> int:
    """Return how long ago a body began, in milliseconds."""
    return int((frame.position.execution.loop.time() - frame.at) * 1000)


def result(frame: Frame, data: bytes) -> Draft:
    """Return the record of a step's value."""
    kind, position = frame.kind, frame.position
    is_paid = frame.answered is None or not frame.answered.cache  # a cached answer was paid for elsewhere
    usage = usage_in(data) if kind is StepKind.DECISION and is_paid else None
    # What the body charges replaces what its value reports. A hit charges nothing, which is no usage.
    if frame.charged is not None and (is_paid or any(frame.charged.values())):
        usage = charged_usage(frame.charged) or usage
    is_plain = usage is None and not frame.failures and frame.taint is None
    if is_plain and frame.answered is None:  # the hot path
        took = int((position.execution.loop.time() - frame.at) * 1000)
        body = write_body(frame.fingerprint, value=data, judged=frame.judged)
        return (Kind.RESULT, position.id, body, (), Facts(kind, took))
    if frame.answered is not None:
        frame.data = data
    body = write_body(
        frame.fingerprint,
        value=data,
        attempts=frame.failures,
        usage=usage,
        judged=frame.judged,
        taint=frame.taint,
        answered=frame.answered,
    )
    read, written = count_tokens(position.execution, usage)
    return (Kind.RESULT, position.id, body, (), Facts(kind, took_ms(frame), read, written))


def count_tokens(execution: Running, usage: Usage | None) -> tuple[int, int]:
    """Count the tokens of an outcome for this worker's metrics, and return those read and written."""
    read, written = (usage.tokens_in, usage.tokens_out) if usage is not None else (0, 0)
    execution.done[TOKENS_IN] += read
    execution.done[TOKENS_OUT] += written
    return read, written


def failure(frame: Frame, error: BaseException, encoded: bytes) -> Draft:
    """Return the record of a step's failure."""
    usage = charged_usage(frame.charged) if frame.charged is not None else None
    body = write_body(
        frame.fingerprint,
        error=encoded,
        attempts=frame.failures,
        usage=usage,
        judged=frame.judged,
        taint=frame.taint,
        answered=frame.answered,
    )
    read, written = count_tokens(frame.position.execution, usage)
    facts = Facts(frame.kind, took_ms(frame), read, written, error=error_text(error))
    return (Kind.FAILURE, frame.position.id, body, (), facts)
