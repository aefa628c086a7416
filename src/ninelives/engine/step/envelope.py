"""x"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from msgspec import Struct

from ninelives.core.errors import Divergence, UsageError
from ninelives.core.journal.matching import Claimed
from ninelives.core.journal.replay import Recorded, signal_number, write_body
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.run import Kind, StepKind
from ninelives.core.model.totals import OUTCOMES, Facts
from ninelives.core.values.codec import Codec
from ninelives.core.values.exceptions import decode_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit.ticket import NOTHING, Draft, Extras
from ninelives.engine.context import StepPosition
from ninelives.engine.run import identity
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.call_site import caller
from ninelives.engine.run.execution import OPEN, Execution
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.waits import await_cancellation, refresh, turn_away


class FoundOutcome(Struct, frozen=True):
    """A recorded outcome and its value."""

    record: Recorded
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

    def __init__(self, execution: Execution, name: str, place: StepPosition | None = None) -> None:
        self.execution, self.place = execution, place or execution.place(name)
        self._is_withdrawn = False
        self._asked: Fingerprint | None = None
        self._began = execution.loop.time()
        task = asyncio.current_task()
        self._task = task if isinstance(task, BranchTask) else None

    @property
    def id(self) -> str:
        """Return the step's id in the journal."""
        return self.place.id

    async def __aenter__(self) -> Self:
        if self._task is not None:
            self._task.foreign_timer = None
        if self.execution.phase is not OPEN:
            await turn_away(self.execution)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, asyncio.CancelledError) or self.execution.sealed is not None:
            return
        if not self._is_withdrawn:  # recorded before we raise: on replay it waits for the same cancellation
            self.execution.note(Kind.WITHDRAWN, self.id, write_body(self._asked), self._facts)
        if self._task is not None and self._task.foreign_timer is not None:
            raise UsageError(
                f"{self._task.foreign_timer} ended this wait, and would not do so on replay",
                run=self.execution.run.id,
                step=self.id,
                remedy="Use nl.timeout: it records who won",
            ) from None

    async def recorded(
        self,
        codec: Codec | None = None,
        *,
        asked: Fingerprint | None = None,
        is_effect: bool = False,
        child: str | None = None,
    ) -> FoundOutcome | None:
        """Return the outcome from the journal, when its delivery is due; None when there is none.

        Raises the recorded error of a failure. With a codec, `value` is decoded; a value that no longer fits
        is a divergence, which seals the execution. With `is_effect`, None means that the effect may start.
        """
        execution, self._asked = self.execution, asked
        found: Claimed | None = None
        if execution.is_resumed and not identity.is_past(execution, self.place):
            found = await identity.find(
                StepLookup(execution, self.place, asked, where=self._asks, is_effect=is_effect, child=child)
            )
        if isinstance(found, Recorded):
            # Nothing new to record: it is withdrawn again, or gets its recorded outcome in the same order.
            self._is_withdrawn = True
            if found.kind is Kind.WITHDRAWN:
                await await_cancellation(execution, found)
            try:
                await execution.delivery.recorded(found)
            except asyncio.CancelledError:
                # A signal was taken, and the earlier worker died before it could record the withdrawal.
                self._is_withdrawn = signal_number(found) < 0
                self.give_back(found)
                raise
            execution.counts.replayed += 1
            if found.kind is Kind.FAILURE:
                raise decode_error(bytes(found.body.e or b""))
            data = bytes(found.body.v or b"null")
            return FoundOutcome(found, await self.value(codec, data) if codec is not None else None)
        return None

    def _asks(self) -> str:
        return caller() or f"nl.{self.place.name}()"

    async def value(self, codec: Codec, data: bytes) -> Any:
        """Decode an outcome; a value that no longer fits is a divergence, which seals the execution."""
        try:
            return codec.recall(data)
        except Divergence as error:
            error.run, error.step = self.execution.run.id, self.id
            self.execution.seal(error)
            return await self.execution.forever()

    async def settle(self, drafts: Sequence[Draft], extras: Extras = NOTHING) -> Verdict:
        """Record an outcome and wait until it may be delivered.

        After a verdict other than COMMITTED (STALE, HELD) nothing was recorded; the news was read again, and
        the caller must check it.
        """
        execution = self.execution
        await execution.require_open()
        slot = execution.delivery.reserve()
        try:
            named = [self._named(draft) for draft in drafts]
            verdict = await execution.durable(execution.write(named, extras))
            if verdict.outcome is Outcome.COMMITTED:
                await execution.delivery.live(slot)
                execution.counts.executed += 1
                return verdict
        except BaseException:
            # Cancelled between record and delivery: __aexit__ appends the withdrawal after the outcome.
            execution.delivery.give_up(slot)
            raise
        execution.delivery.give_up(slot)
        await refresh(execution)
        return verdict

    def give_back(self, taken: Recorded) -> None:
        """Keep a signal that was taken but not delivered, for the next step that receives one."""
        number, execution = signal_number(taken), self.execution
        if number >= 0 and execution.sealed is None:
            execution.replay.returned[number] = taken
            execution.wake_waits()

    @property
    def _facts(self) -> Facts:
        return Facts(StepKind.BUILTIN, max(0, int((self.execution.loop.time() - self._began) * 1000)))

    def _named(self, draft: Draft) -> Draft:
        """Return an outcome record of this step with its facts added, unless it has them."""
        if draft[1] != self.id or draft[0] not in OUTCOMES or len(draft) == 5:
            return draft
        return (*draft[:3], draft[3] if len(draft) == 4 else (), self._facts)
