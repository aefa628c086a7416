"""The governor of a runtime: asks its parts, and fails closed.

Parts are optional; one that is None costs nothing. An error inside a part denies the call or holds it, and
never lets it through. What is durable lies in documents and in the run's records, never here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from ninelives.core.errors import StoreUnavailable
from ninelives.core.governance.accounts import Over, Requirement, Reserve, Settle
from ninelives.core.governance.verdicts import Ask, Call, Deny, Judgement, strictest
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import Item
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.enforced import Enforced, note_enforced
from ninelives.governance.names import names_role
from ninelives.governance.parts import (
    BreaksCircuits,
    ChecksAnswers,
    CountsOutcomes,
    GovernedStore,
    JudgesCalls,
    KeepsAccounts,
    KeepsBudgets,
    KeepsRates,
    KnowsHalts,
    LimitsCalls,
    Refreshes,
)

LOGGER = logging.getLogger("ninelives")
_AGAIN_MS = 1_000
_TRIES, _PAUSE_SECONDS = 40, 0.25


class StoreGovernor:
    """Implements `engine.governor.Governor` out of parts."""

    def __init__(
        self,
        store: GovernedStore,
        halts: KnowsHalts,
        *,
        policy: JudgesCalls | None = None,
        breakers: BreaksCircuits | None = None,
        trips: CountsOutcomes | None = None,
        limits: LimitsCalls | None = None,
        rates: KeepsRates | None = None,
        budgets: KeepsBudgets | None = None,
        approvers: ChecksAnswers | None = None,
        background: Background | None = None,
    ) -> None:
        self._store, self.halts, self.policy = store, halts, policy
        self.breakers, self.limits, self.budgets, self.approvers = breakers, limits, budgets, approvers
        self.rates = rates
        self.has_policy = policy is not None
        self._background = background
        self._accounts: tuple[KeepsAccounts, ...] = tuple(
            part for part in (limits, budgets) if part is not None
        )
        self._counting: tuple[CountsOutcomes, ...] = tuple(
            part for part in (breakers, trips) if part is not None
        )
        self._read: tuple[Refreshes, ...] = tuple(
            part for part in (halts, breakers, rates, budgets, approvers) if part is not None
        )
        self._requires: tuple[Requirement, ...] = ()

    @property
    def halts_version(self) -> int:
        """The version of the document `halts` that this governor has read."""
        return self.halts.version

    def held(self, step: Step, call: Call) -> Hold | None:
        """Return why a call must wait now: a halt, an open breaker, a provider's rate."""
        try:
            hold = self.halts.held(step, call)
            if hold is None and self.breakers is not None:
                hold = self.breakers.held(step, call)
            if hold is None and self.rates is not None:
                hold = self.rates.held(step, call)  # last: a call that may go takes its share
        except Exception as error:
            LOGGER.exception("run %s, %s: nothing can say whether it is halted", call.run, call.action)
            what = f"because it is unknown whether {call.action!r} is halted: {type(error).__name__}: {error}"
            return Hold(what, self._store.now_ms() + _AGAIN_MS)
        return hold

    def judge(self, step: Step, call: Call) -> Judgement:  # noqa: ARG002 (of the protocol)
        """Return the strictest of what the policy and the limits say."""
        if self.policy is None:
            raise RuntimeError("no policy judges calls here")
        try:
            judgement = self.policy.judge(call)
            limited = self.limits.judge(call) if self.limits is not None else None
        except Exception as error:
            LOGGER.exception("run %s, %s: it cannot be judged", call.run, call.action)
            what = f"{type(error).__name__}: {error}"
            return Judgement(Deny("the call could not be judged"), (), self.policy.digest, error=what)
        return judgement if limited is None else strictest((judgement, limited))

    def requirements(self, step: Step) -> tuple[Requirement, ...]:  # noqa: ARG002 (of the protocol)
        """Return the version of the halts that an intent requires: the one that `held` knew."""
        version = self.halts.version
        if not self._requires or self._requires[0].version != version:
            self._requires = (Requirement(HALTS, version),)
        return self._requires

    async def refresh(self) -> None:
        """Read all documents again, patiently. Raises StoreError; then what was known stays."""
        # All in the thread: a timer on the loop would count as one of the run's code.
        await asyncio.to_thread(self._read_patiently)

    def _read_patiently(self) -> None:
        for _ in range(_TRIES):
            with suppress(StoreUnavailable):
                return self.read()
            time.sleep(_PAUSE_SECONDS)
        return self.read()

    def read(self) -> None:
        """Read all documents, on this thread. Raises StoreError."""
        for part in self._read:
            part.refresh(self._store)

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:
        """Return what a call reserves, of rates and budgets."""
        found: tuple[Reserve, ...] = ()
        for part in self._accounts:
            found += part.reserves(step, call)
        return found

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask:
        """Return what the part whose account it is makes of a call over its limit."""
        for part in self._accounts:
            found = part.over(step, call, over)
            if found is not None:
                return found
        return Deny(f"it would pass the limit {over.limit} of {over.meter} in {over.account!r}")

    def settles(
        self,
        step: Step,
        call: Call,
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],
    ) -> tuple[Settle, ...]:
        """Return how each part settles its own reservations."""
        found: tuple[Settle, ...] = ()
        for part in self._accounts:
            found += part.settles(step, call, reserved, outcome, charged)
        return found

    def refuses_answer(self, item: Item, *, to: str, not_by: str, is_taken: bool = False) -> str | None:
        """Return why an answer does not count. Without approvers any answer to a person's name counts."""
        if self.approvers is not None:
            return self.approvers.refuses_answer(item, to=to, not_by=not_by, is_taken=is_taken)
        if names_role(to):
            return f"only {to!r} may answer, and no approvers are known here (give a file of approvers)"
        return None

    def note_session(self, session: str) -> None:
        """Keep which policy the worker of a session enforces, before it begins. Raises StoreError."""
        if self.policy is not None:
            name = str(getattr(self.policy, "name", ""))
            note_enforced(self._store, session, Enforced(self.policy.digest, name))

    def close(self) -> None:
        """Stop the thread behind, once what it does now is done. Not for an event loop."""
        if self._background is not None:
            self._background.close()

    def outcome(
        self, step: Step, call: Call, error: BaseException | None, tokens: int = 0, requests: int = 1
    ) -> None:
        """Count how a call ended."""
        if self.rates is not None:
            self.rates.outcome(step, call, error, tokens, requests)
        for part in self._counting:
            part.outcome(step, call, error)
