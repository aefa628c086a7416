"""A small governor of real parts: rules by action, holds, and budgets in documents of the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import ninelives as nl
from ninelives.core.governance.accounts import Over, Requirement, Reserve, Settle
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Verdict
from ninelives.core.ids import parse_step_id
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import Kind, Record
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.runtime.runtime import ProcessOptions
from ninelives.store import Store

Rule = Callable[[Call], Verdict]


class SmallGovernor:
    """Judges by a function per action, allows all others, and counts what it was asked."""

    def __init__(
        self, rules: Mapping[str, Rule | Verdict] | None = None, *, digest: str = "digest-1"
    ) -> None:
        self.has_policy, self.digest, self.rules = True, digest, rules or {}
        self.judged: list[Call] = []
        self.ends: list[tuple[str, str]] = []
        self.refreshed = 0
        self.version = 0
        self.store: Any = None
        self.halted: set[str] = set()
        self.until_ms: int | None = None
        self.estimates: dict[str, tuple[Reserve, ...]] = {}
        self.when_over: Deny | Hold | Ask = Deny("over the limit")
        self.overs: list[Over] = []
        self.refuses: dict[str, str] = {}
        self.settlements: list[tuple[tuple[Reserve, ...], Any, dict[str, int]]] = []

    @property
    def halts_version(self) -> int:
        """The version of the halts that it knows."""
        return self.version

    def held(self, step: Step, call: Call) -> Hold | None:
        """Hold what is halted."""
        if call.action in self.halted:
            return Hold(f"until the halt of {call.action} is lifted", self.until_ms)
        return None

    def judge(self, step: Step, call: Call) -> Judgement:
        """Judge by the rule of the action."""
        self.judged.append(call)
        rule = self.rules.get(call.action, Allow())
        verdict = rule(call) if callable(rule) else rule
        return Judgement(verdict, (f"rule-{call.action}",), self.digest)

    def requirements(self, step: Step) -> tuple[Requirement, ...]:
        """Require what was read last."""
        return (Requirement(HALTS, self.version),)

    async def refresh(self) -> None:
        """Read the halts again: one action's name per word of the document."""
        self.refreshed += 1
        assert self.store is not None
        found = {one.name: one for one in self.store.read_documents(HALTS)}
        document = found.get(HALTS)
        self.version = document.version if document is not None else 0
        self.halted = set(json.loads(document.body).split()) if document is not None else set()

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:
        """Reserve what the test says."""
        return self.estimates.get(call.action, ())

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask:
        """Answer what the test says."""
        self.overs.append(over)
        return self.when_over

    def settles(
        self,
        step: Step,
        call: Call,
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],
    ) -> tuple[Settle, ...]:
        """Charge what the body charged, else the estimate; nothing if nothing was done."""
        self.settlements.append((reserved, outcome, charged))
        spent: Callable[[Reserve], dict[str, int]] = lambda one: charged or one.amounts  # noqa: E731
        if isinstance(outcome, nl.NotDone):
            spent = lambda _: {}  # noqa: E731
        return tuple(Settle(one.account, one.amounts, spent(one)) for one in reserved)

    def refuses_answer(self, item: Item, *, to: str, not_by: str, is_taken: bool = False) -> str | None:
        """Refuse the answers of some people, until they are taken."""
        return None if is_taken else self.refuses.get(item.by)

    def outcome(
        self, step: Step, call: Call, error: BaseException | None, tokens: int = 0, requests: int = 1
    ) -> None:
        """Note how a call ended."""
        self.ends.append((call.action, type(error).__name__ if error is not None else ""))


def governed(store: Any, governor: Any) -> nl.Runtime:
    """Return a runtime whose runs are governed."""
    return nl.Runtime(store, process=ProcessOptions(governor=governor))


def records_of(store: Store, run: str = "run") -> list[Record]:
    """Return a run's records."""
    return list(store.load_journal(run, since=0).records)


def first_of(store: Store, name: str, run: str = "run") -> Record:
    """Return the first record of the step of that name."""
    return next(one for one in records_of(store, run) if one.step and parse_step_id(one.step).name == name)


def kinds_of(store: Store, run: str = "run") -> list[Kind]:
    """Return the kinds of a run's records, but the first."""
    return [record.kind for record in records_of(store, run)][1:]
