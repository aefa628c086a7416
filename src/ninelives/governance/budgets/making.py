"""Makes the budgets of a process from the tables of its policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ninelives.core.governance.costs import USD
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.budgets.budgets import Budgets
from ninelives.governance.budgets.declarations import check
from ninelives.governance.budgets.prices import price_list
from ninelives.stores.clock import SystemClock

TABLE = "budget"


def make_budgets(
    tables: Mapping[str, Any],
    now_ms: Callable[[], int],
    steps: Iterable[Step] | None = None,
    background: Background | None = None,
) -> Budgets | None:
    """Return the budgets that a policy's tables declare; None without any. Raises UsageError."""
    declared = check(tables.get(TABLE, []), steps)
    if not declared:
        return None
    price = price_list() if any(USD in one.limits for one in declared) else None
    boot_ms = SystemClock().boot_ms
    return Budgets(declared, now_ms=now_ms, boot_ms=boot_ms, price=price, background=background)
