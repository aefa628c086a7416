"""What the governor asks of budgets: what a call reserves, what happens over a limit, what it has spent.

A call reserves with its intent and settles with its outcome, in the same fenced commits: a worker that lost
its run can charge nothing, and what is recorded is charged once. The store compares with the limits, in the
transaction: calls of any number of processes never pass one together. If we die between, what the start
reserved is on record, and the next life settles it as spent.

All but `refresh` use the CPU only and never raise. A call whose cost cannot be known reserves more than any
limit, so that the store itself refuses it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.core.governance.accounts import Over, Reserve, Settle
from ninelives.core.governance.costs import shown
from ninelives.core.governance.verdicts import Ask, Call, Deny
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.governance.background import Background
from ninelives.governance.budgets.account_names import account_name, parsed, value_of, waits_for
from ninelives.governance.budgets.declarations import DENY, ESCALATE, REACTIONS, Budget, joined
from ninelives.governance.budgets.estimates import estimated, most_requests, of_budget
from ninelives.governance.budgets.prices import Price
from ninelives.governance.budgets.publication import publish
from ninelives.governance.budgets.settlements import Spent, at_least
from ninelives.governance.budgets.standings import used_account, used_accounts
from ninelives.governance.budgets.windows import end_ms, window_at
from ninelives.store import DocumentStore
from ninelives.views import documents

LOGGER = logging.getLogger("ninelives")
_REFUSED = "refused"
"""The meter of a reservation that the store refuses always."""
_MOST_STARTS = 100_000
_STALE_MS = 1_000
"""After so long, what is used of an account is read again."""


class Budgets:
    """The budgets of a process: a `governance.parts.KeepsBudgets`.

    `now_ms` is the store's clock, `boot_ms` the machine's, which measures how long a call took.
    """

    def __init__(
        self,
        declared: Sequence[Budget],
        *,
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
        price: Price | None = None,
        background: Background | None = None,
    ) -> None:
        # The strictest first: of several limits that a call would pass, the store names the first.
        ordered = sorted(joined(declared), key=lambda one: (REACTIONS.index(one.on), one.name))
        self.declared = tuple(ordered)
        self._by_name = {one.name: one for one in ordered}
        self._now_ms, self._boot_ms, self._price = now_ms, boot_ms, price
        self._of_step: dict[str, tuple[Budget, ...]] = {}
        self._begun: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._is_published = False
        self._background = background
        self._store: DocumentStore | None = None
        self._used: dict[str, float] = {}
        self._read_at: dict[str, int] = {}

    def refresh(self, store: DocumentStore) -> None:
        """Publish once what is declared, so that commands and metrics know it. Raises StoreError."""
        if not self._is_published:
            publish(store, self.declared)
            self._is_published = True
        if self._background is not None:
            self._store = store
            self._used = used_accounts(store, self.declared, self._now_ms())

    def used(self, name: str, call: Call) -> float:
        """Return the share of a budget that is used up for a call, as this process read it a moment ago.

        For conditions of rules; what holds is the limit, which the store checks. Raises UsageError.
        """
        budget = self._by_name.get(name)
        value = value_of(budget.scope, call) if budget is not None else None
        if budget is None or value is None or self._background is None:
            raise UsageError(f"what is used of budget {name!r} is not known", run=call.run)
        account = account_name(name, window_at(budget.per, self._now_ms()), budget.scope, value)
        now_ms = self._boot_ms()
        if now_ms - self._read_at.get(account, -_STALE_MS) >= _STALE_MS:
            if len(self._read_at) > _MOST_STARTS:
                self._read_at.clear()
            self._read_at[account] = now_ms
            self._background.do(lambda: self._read_again(budget, account))
        # Not there when it was read: nothing was spent of it then.
        return self._used.get(account, 0.0)

    def _read_again(self, budget: Budget, account: str) -> None:
        if self._store is not None:
            self._used[account] = used_account(budget, account, documents.find(self._store, account))

    def reserves(self, step: Step, call: Call) -> tuple[Reserve, ...]:
        """Return what a call reserves: one reservation for each budget that counts it."""
        counting = self._counting(call)
        if not counting:
            return ()
        try:
            reserved = self._planned(step, call, counting)
        except Exception as error:  # noqa: BLE001 (a `cost=` function may raise anything)
            LOGGER.warning("run %s, %s: its cost is not known: %s", call.run, call.action, error)
            name = account_name(counting[0].name, _REFUSED, "run", call.run)
            return (Reserve(name, {_REFUSED: 1}, {_REFUSED: 0}),)
        self._begun[call.run, call.step] = self._boot_ms()
        if len(self._begun) > _MOST_STARTS:  # calls whose executions were sealed are never settled here
            self._begun.popitem(last=False)
        return reserved

    def over(self, step: Step, call: Call, over: Over) -> Deny | Hold | Ask | None:
        """Return what becomes of a call over a limit; None if the account is not a budget's."""
        account = parsed(over.account)
        if account is None:
            return None
        budget = self._by_name.get(account.budget)
        if over.meter == _REFUSED or budget is None:
            return Deny(self._refusal(step, call))
        why = (
            f"budget {budget.name!r} {account.whose}: {shown(over.meter, over.spent)} spent and "
            f"{shown(over.meter, over.reserved)} reserved of {shown(over.meter, over.limit)}, and this call "
            f"reserves {shown(over.meter, over.amount)}"
        )
        if budget.on == ESCALATE:
            return Ask(to=budget.to, why=why)
        due_ms = end_ms(account.window)
        if budget.on == DENY or due_ms is None or over.amount > over.limit:
            # A call that is larger than the whole budget does not fit into any window.
            return Deny(why)
        when = moment(due_ms)
        return Hold(f"until {when:%Y-%m-%d %H:%M}Z for {waits_for(budget.name, account.whose)}", due_ms)

    def settles(
        self,
        step: Step,
        call: Call,
        reserved: tuple[Reserve, ...],
        outcome: bytes | BaseException | None,
        charged: dict[str, int],
    ) -> tuple[Settle, ...]:
        """Return how the reservations of budgets are settled."""
        ours = [(one, account) for one in reserved if (account := parsed(one.account)) is not None]
        if outcome is None:
            # It died, or was cancelled midway: it has spent what it reserved, and more if it said so.
            return tuple(Settle(one.account, one.amounts, at_least(one.amounts, charged)) for one, _ in ours)
        began_ms = self._begun.pop((call.run, call.step), None)
        took_ms = None if began_ms is None else max(0, self._boot_ms() - began_ms)
        try:
            spent = Spent(
                call,
                outcome,
                charged,
                took_ms,
                self._price,
                is_decision=step.is_decision,
                most_requests=most_requests(step),
            )
            return tuple(
                Settle(
                    one.account,
                    one.amounts,
                    spent.of(self._presumed(step, call, one), self._meters(account.budget, one)),
                )
                for one, account in ours
            )
        except Exception:
            LOGGER.exception("run %s, %s: what it has spent cannot be said", call.run, call.action)
            return tuple(Settle(one.account, one.amounts, one.amounts) for one, _ in ours)

    def _presumed(self, step: Step, call: Call, reserve: Reserve) -> dict[str, int]:
        """Return what a call has spent if it does not say it."""
        if reserve.amounts or call.kind != "compensation":
            return reserve.amounts
        return estimated(step, call, self._price)

    def _meters(self, name: str, reserve: Reserve) -> dict[str, int]:
        """Return the meters that a budget counts; if it is not declared any more, those reserved."""
        budget = self._by_name.get(name)
        return budget.limits if budget is not None else reserve.amounts

    def _counting(self, call: Call) -> tuple[Budget, ...]:
        """Return the budgets that count a call."""
        found = self._of_step.get(call.action)
        if found is None:
            found = tuple(one for one in self.declared if one.counts(call.action))
            self._of_step[call.action] = found
        # The calls of a child are charged, not its start.
        return () if call.kind == "spawn" else found

    def _planned(self, step: Step, call: Call, counting: Sequence[Budget]) -> tuple[Reserve, ...]:
        amounts = estimated(step, call, self._price)
        now_ms = self._now_ms()
        found: list[Reserve] = []
        for budget in counting:
            value = value_of(budget.scope, call)
            if value is None:
                raise UsageError(
                    f"budget {budget.name!r} is of trees of runs, and the root of this one is not known",
                    run=call.run,
                )
            name = account_name(budget.name, window_at(budget.per, now_ms), budget.scope, value)
            if call.kind == "compensation":
                # What undoes an effect is counted and never refused: it reserves nothing.
                found.append(Reserve(name, {}))
            else:
                found.append(Reserve(name, of_budget(budget, step, amounts), budget.limits))
        return tuple(found)

    def _refusal(self, step: Step, call: Call) -> str:
        try:
            self._planned(step, call, self._counting(call))
        except UsageError as error:
            return f"its cost is not known: {error}"
        except Exception as error:  # noqa: BLE001
            return f"its cost is not known: {type(error).__name__}: {error}"
        return "its cost was not known when it was to begin"
