"""What governs calls: asked before anything of a call happens, and notified of how it ended.

The engine asks in this order, for each call that has no recorded outcome: is it held (`held`), what does the
policy say (`judge`), then the step's own approval, then budgets (`reserves`) together with the key and the
intent. An intent carries `requirements`, so the store itself refuses it when a halt was committed meanwhile.
A governor fails closed: an error inside it is a `Judgement` with `error`, or a `Hold`, never an allow. It
keeps nothing durable itself: what it decided is in the run's records. If we die, the next worker's governor
judges what has no outcome yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Protocol

from msgspec import Struct

from ninelives.core.governance.accounts import AccountOp, Over, Requirement, Reserve, Settle
from ninelives.core.governance.judged import Judged
from ninelives.core.governance.verdicts import Ask, Call, Deny, Judgement
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import Item
from ninelives.engine.spec.registry import Step

NOT_HALTED = (Requirement(HALTS, 0),)
"""What an intent requires while nothing governs: no halt was ever declared in this store."""


class Hold(Struct, frozen=True):
    """The call must wait. `what` completes "it waits ...": "until the halt of agent 'shop' is lifted".

    It is asked again when the governor's view changes, and at `due_ms` by the store's clock. One that
    `is_brief` only spares a provider: it is waited for in memory if it takes some seconds at most, and a call
    inside another step, which cannot wait, goes on.
    """

    what: str
    due_ms: int | None = None
    is_brief: bool = False


class Permit(Struct, frozen=True):
    """A call that may begin, with what its records and its intent's commit carry.

    `args` and `kwargs` are those that the body gets: the policy may have rewritten them. `judged` is None
    when no policy judged it. `left` settles what a dead worker's start of this call had reserved. `exceeds`
    are amounts over a limit that a person approved: they count as spent when the call begins. `digest` is
    that of the arguments that were judged, if the run's code could change them before the body gets them.
    `requires` is what the intent requires: what was known *before* it was asked whether the call is held.
    """

    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    judged: Judged | None = None
    reserves: tuple[Reserve, ...] = ()
    left: tuple[Settle, ...] = ()
    exceeds: tuple[Settle, ...] = ()
    digest: bytes | None = None
    requires: tuple[Requirement, ...] = ()

    @property
    def accounts(self) -> tuple[AccountOp, ...]:
        """What the commit of the intent does to accounts, in order."""
        return (*self.left, *self.exceeds, *self.reserves)


class Governor(Protocol):
    """What a process knows of policy, halts, breakers, budgets and approvers. See `ninelives.governance`.

    All methods but `refresh` use the CPU only and never raise; should one raise all the same, the engine
    treats the call as judged with an error: the run escalates. They are called on the event loop of the run;
    `held` and `judge` also on the thread of a body that calls another step.
    """

    has_policy: bool
    """Whether calls are judged; else `judge` and `reserves` are not called."""

    @property
    def halts_version(self) -> int:
        """The version of the document `halts` that `held` knows."""

    def held(self, step: Step, call: Call) -> Hold | None:
        """Return why the call must wait now (halts, breakers), by what is known in memory."""

    def judge(self, step: Step, call: Call) -> Judgement:
        """Return the policy's judgement; with `error` set when a rule failed, and then never `Allow`."""

    def requirements(self, step: Step) -> tuple[Requirement, ...]:
        """Return the documents that an intent of this step requires, at the versions that `held` knew."""

    async def refresh(self) -> None:
        """Read the documents again: the store has found one at another version (`Outcome.CHANGED`)."""

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:
        """Return what the call reserves in the accounts of budgets."""

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask:
        """Return what becomes of a call whose reservation would pass a limit (`Outcome.OVER`)."""

    def settles(
        self,
        step: Step,
        call: Call,
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],
    ) -> tuple[Settle, ...]:
        """Return how reservations are settled when a call ends; asked only if it has reserved something.

        `outcome` is its encoded value or its error: a NotDone proves that nothing was done. None: it is
        unknown what it did, because its worker died or the run's code cancelled it. `charged` is what the
        body itself charged, by meter; of a worker that died that is unknown, and empty.
        """

    def refuses_answer(self, item: Item, *, to: str, not_by: str, is_taken: bool = False) -> str | None:
        """Return why an answer does not count (no such approver, a wrong signature); None if it counts.

        With `is_taken` it counted once, says the journal: what has expired or was revoked since still counts.
        """

    def outcome(
        self, step: Step, call: Call, error: BaseException | None, tokens: int = 0, requests: int = 1
    ) -> None:
        """Note how an attempt of a body, or a call that was denied, ended: breakers and trips count it.

        `tokens` and `requests` are what a step with `limit=` has used of it.
        """


class Governing:
    """The place of a runtime's governor: all its executions share it, and it may be filled at any time.

    So a halt reaches runs that were being executed before anything governed them. `install` is awaited when
    the store says that a halt exists and nothing governs yet; it should set `governor`.
    """

    __slots__ = ("_reading", "changed", "governor", "install")

    def __init__(
        self, governor: Governor | None = None, install: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.governor, self.install = governor, install
        self.changed: Callable[[], None] = _nothing
        """Makes held calls ask again. May be called on any thread; the executor sets it."""
        self._reading: asyncio.Task[None] | None = None

    def govern(self, governor: Governor | None) -> None:
        """Set what governs from now on, and make held calls ask again."""
        self.governor = governor
        self.changed()

    @property
    def halts_version(self) -> int:
        """The version of the document `halts` that calls are held by."""
        return 0 if self.governor is None else self.governor.halts_version

    async def notice(self, halts: int) -> None:
        """Read the documents again, if the store has seen `halts` at another version than what is known.

        Only on the event loop. Raises StoreError: what was known stays, and intents are refused as before.
        """
        for _ in range(2):  # a read that is under way may have begun before the change
            if halts == self.halts_version or 0 <= halts < self.halts_version:
                return
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read(), context=Context())
                self._reading.add_done_callback(self._has_read)
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        if self.governor is not None:
            await self.governor.refresh()
        elif self.install is not None:
            await self.install()
        self.changed()

    def _has_read(self, _: object) -> None:
        self._reading = None

    def requirements(self, step: Step) -> tuple[Requirement, ...]:
        """Return what an intent of this step requires."""
        return NOT_HALTED if self.governor is None else self.governor.requirements(step)


def _nothing() -> None:
    """Do nothing: no execution waits."""
