"""The parts that a `StoreGovernor` is made of, each as the little that the governor asks of it.

All but `refresh` are called on the event loop and use the CPU only. A part keeps nothing durable in memory:
if we die, the next process reads the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ninelives.core.governance.accounts import Over, Reserve, Settle
from ninelives.core.governance.verdicts import Ask, Call, Deny, Judgement
from ninelives.core.model.inbox import Item
from ninelives.core.model.session import Session
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.store import DocumentStore


class GovernedStore(DocumentStore, Protocol):
    """What governing needs of a store."""

    def now_ms(self) -> int: ...

    def list_sessions(self) -> Sequence[Session]: ...


class Refreshes(Protocol):
    """A part that reads documents."""

    def refresh(self, store: GovernedStore) -> None:
        """Read the documents again; called in a thread. Raises StoreError."""


class JudgesCalls(Protocol):
    """A policy, or several of which the strictest verdict wins."""

    digest: str
    tables: Mapping[str, Any]
    """The tables of its file that other parts own: `budget`, `trip`, `breaker`, `limit`, `approvers`."""

    def judge(self, call: Call) -> Judgement:
        """Return the judgement of a call."""


class HoldsCalls(Protocol):
    """Why calls must wait: halts, breakers."""

    def held(self, step: Step, call: Call) -> Hold | None:
        """Return why a call must wait now."""


class KnowsHalts(HoldsCalls, Refreshes, Protocol):
    """The halts, as of one version of their document."""

    version: int


class CountsOutcomes(Protocol):
    """What counts how calls end: breakers, trips."""

    def outcome(self, step: Step, call: Call, error: BaseException | None) -> None:
        """Note how a body, or a call that was denied, ended."""


class BreaksCircuits(HoldsCalls, CountsOutcomes, Refreshes, Protocol):
    """Circuit breakers."""


class KeepsRates(HoldsCalls, Refreshes, Protocol):
    """Rates of providers."""

    def outcome(
        self, step: Step, call: Call, error: BaseException | None, tokens: int = 0, requests: int = 1
    ) -> None:
        """Count what a call has used, when it ends."""


class KeepsAccounts(Protocol):
    """What reserves amounts: budgets, rates."""

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:
        """Return what a call reserves."""

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask | None:
        """Return what becomes of a call that would pass a limit; None if the account is not this part's."""

    def settles(
        self,
        step: Step,
        call: Call,
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],
    ) -> tuple[Settle, ...]:
        """Return how the reservations of this part's accounts are settled; it leaves others alone."""


class KeepsBudgets(KeepsAccounts, Refreshes, Protocol):
    """Budgets."""


class LimitsCalls(KeepsAccounts, Protocol):
    """Rates, and limits of how far a run may branch out."""

    def judge(self, call: Call) -> Judgement | None:
        """Return a refusal; None if no limit is passed."""


class ChecksAnswers(Refreshes, Protocol):
    """Approvers."""

    def refuses_answer(self, item: Item, *, to: str, not_by: str, is_taken: bool = False) -> str | None:
        """Return why an answer does not count; None if it counts."""
