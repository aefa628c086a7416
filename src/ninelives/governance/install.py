"""Makes the governor of a runtime: from a policy, or for the halts of a store that nothing governed."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ninelives.core.governance.verdicts import Call, Verdict
from ninelives.engine.governor import Governing
from ninelives.engine.spec.registry import STEPS, declared_breakers, find_step
from ninelives.governance import breakers, limits, trips
from ninelives.governance.approvers.approvers import of_policy
from ninelives.governance.background import Background
from ninelives.governance.breakers import Breakers
from ninelives.governance.governor import StoreGovernor
from ninelives.governance.halt_changes import HaltingStore
from ninelives.governance.halts import Halts
from ninelives.governance.limits import CallLimits
from ninelives.governance.parts import JudgesCalls, KeepsBudgets
from ninelives.governance.rates import Rates, declared_limits
from ninelives.governance.trips import Trips

LOGGER = logging.getLogger("ninelives")
PolicySource = str | os.PathLike[str] | Callable[[Call], Verdict]
Policies = PolicySource | Sequence[PolicySource]
GoverningStore = HaltingStore
"""What all parts together need of a store."""


async def govern(governing: Governing, store: GoverningStore, policies: Policies = ()) -> StoreGovernor:
    """Set the governor of a runtime, and return it. Raises UsageError for a bad policy; StoreError."""
    # Looked up when it is called: the executor sets it, after the first governor is made.
    made = await asyncio.to_thread(make_governor, store, policies, lambda: governing.changed())  # noqa: PLW0108
    governing.govern(made)
    return made


def make_governor(
    store: GoverningStore, policies: Policies = (), changed: Callable[[], None] = lambda: None
) -> StoreGovernor:
    """Return a governor that has read its documents. Raises as `govern` does."""
    found = _several(policies)
    policy = _load(found) if found else None
    tables: Mapping[str, Any] = policy.tables if policy is not None else {}
    background = Background()
    declared = declared_breakers()
    rates = declared_limits({name: step for name in STEPS if (step := find_step(name)) is not None})
    circuits = breakers.check(tables.get("breaker", []))
    governor = StoreGovernor(
        store,
        Halts(store.now_ms),
        policy=policy,
        breakers=Breakers(store, circuits, declared, background, changed) if circuits or declared else None,
        trips=Trips(store, trips.check(tables["trip"]), background) if "trip" in tables else None,
        approvers=of_policy(policy, store.now_ms, getattr(policy, "directory", Path())),
        limits=CallLimits(store, limits.check(tables["limit"]), background) if "limit" in tables else None,
        rates=Rates(store, rates, background, changed) if rates else None,
        budgets=_budgets(policy, store, background) if "budget" in tables else None,
        background=background,
    )
    governor.read()
    if policy is not None:
        _record(store, policy)
    return governor


def _several(policies: Policies) -> tuple[PolicySource, ...]:
    if callable(policies) or isinstance(policies, str | os.PathLike):
        return (policies,)
    return tuple(policies)


def _load(policies: tuple[PolicySource, ...]) -> JudgesCalls:
    """Return the policies as one, proved to deny what they must."""
    policy: Any = importlib.import_module("ninelives.governance.policy.combined")
    loaded: JudgesCalls = policy.open_policies(policies)
    return loaded


def _record(store: GoverningStore, policy: JudgesCalls) -> None:
    """Keep the policy's text, and log that it is loaded, before it judges anything: records name its digest.

    If we die between the two: a text without an entry; the next process that loads it writes the entry.
    """
    from ninelives.governance.audit_log.entries import append
    from ninelives.governance.policy.kept import keep

    given: Any = policy
    LOGGER.info("the policy %r judges calls, digest %s", given.name, given.digest[:12])
    keep(store, given)
    log: Any = store
    append(log, "policy loaded", id=f"policy/{given.digest}", digest=given.digest, name=given.name)


def _budgets(policy: Any, store: HaltingStore, background: Background) -> KeepsBudgets | None:
    """Return the budgets of a policy, whose rules may ask what is used of them.

    Their module is imported only where there are any.
    """
    from ninelives.governance.budgets.making import make_budgets

    steps = [step for name in STEPS if (step := find_step(name)) is not None]
    made = make_budgets(policy.tables, store.now_ms, steps, background)
    if made is not None:
        policy.supply_spent(made.used)
    return made
