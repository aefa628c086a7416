"""Runtimes that real parts govern, with a policy that is a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ninelives as nl
from ninelives.core.governance.verdicts import Allow, Call, Judgement, Verdict
from ninelives.governance.approvers.approvers import Approvers
from ninelives.governance.governor import StoreGovernor
from ninelives.governance.halts import Halts
from ninelives.runtime.runtime import ProcessOptions


class Watching:
    """A policy: allows what it has no rule for, and keeps the calls that it judged."""

    digest = "digest-1"

    def __init__(self, rules: dict[str, Callable[[Call], Verdict] | Verdict] | None = None) -> None:
        self.rules, self.judged = rules or {}, list[Call]()
        self.tables: Mapping[str, Any] = {}

    def judge(self, call: Call) -> Judgement:
        """Judge by the rule of the action."""
        self.judged.append(call)
        rule = self.rules.get(call.action, Allow())
        return Judgement(rule(call) if callable(rule) else rule, (f"rule-{call.action}",), self.digest)


def governed(store: Any, policy: Watching, approvers: Approvers | None = None) -> nl.Runtime:
    """Return a runtime whose runs are governed."""
    governor = StoreGovernor(store, Halts(store.now_ms), policy=policy, approvers=approvers)
    governor.read()
    return nl.Runtime(store, process=ProcessOptions(governor=governor))
