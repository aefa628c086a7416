"""How budgets stand: what was spent and reserved of each account in its current window. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ninelives.core.governance.accounts import read
from ninelives.core.model.document import Document
from ninelives.governance.budgets.account_names import PREFIX, AccountName, parsed
from ninelives.governance.budgets.declarations import Budget
from ninelives.governance.budgets.publication import published
from ninelives.governance.budgets.settlements import PRESUMED, UNPRICED
from ninelives.governance.budgets.windows import end_ms, window_at
from ninelives.store import DocumentStore
from ninelives.views.documents import listing


class Meter(Struct, frozen=True, kw_only=True):
    """How one meter of an account stands, in micro-dollars, milliseconds, tokens, calls."""

    meter: str
    limit: int
    spent: int
    reserved: int
    is_changed: bool

    @property
    def ratio(self) -> float:
        """The share of the limit that is spent or reserved."""
        return (self.spent + self.reserved) / self.limit if self.limit else 1.0


class AccountStanding(Struct, frozen=True, kw_only=True):
    """An account of a budget. Field names are stable: programs read them.

    `is_changed` of a meter: its limit was set for this account. `ends_ms`: when its window is over.
    `unpriced` and `presumed` count calls that were charged what they had reserved.
    """

    budget: str
    window: str
    scope: str
    value: str
    whose: str
    on: str
    ends_ms: int | None
    meters: tuple[Meter, ...]
    unpriced: int
    presumed: int


def standings(store: DocumentStore, now_ms: int, name: str | None = None) -> Iterator[AccountStanding]:
    """Yield how the current accounts stand, of all budgets or of one. Raises Corrupt, StoreError."""
    for budget in published(store):
        if name in (None, budget.name):
            yield from _current(store, budget, now_ms)


def _current(store: DocumentStore, budget: Budget, now_ms: int) -> Iterator[AccountStanding]:
    window = window_at(budget.per, now_ms)
    for document in listing(store, f"{PREFIX}{budget.name}/{window}/"):
        account = parsed(document.name)
        # Another scope: the budget was declared otherwise before.
        if account is not None and account.scope == budget.scope:
            yield standing(budget, account, document)


def standing(budget: Budget, account: AccountName, document: Document | None) -> AccountStanding:
    """Return how an account stands; without a document nothing was spent. Raises Corrupt."""
    body = document.body if document is not None else None
    found = read(document.name if document is not None else "", body)
    return AccountStanding(
        budget=budget.name,
        window=account.window,
        scope=account.scope,
        value=account.value,
        whose=account.whose,
        on=budget.on,
        ends_ms=end_ms(account.window),
        meters=tuple(
            Meter(
                meter=meter,
                limit=found.limits.get(meter, limit),
                spent=found.spent.get(meter, 0),
                reserved=found.reserved.get(meter, 0),
                is_changed=meter in found.limits,
            )
            for meter, limit in budget.limits.items()
        ),
        unpriced=found.spent.get(UNPRICED, 0),
        presumed=found.spent.get(PRESUMED, 0),
    )


def ratios(found: Iterable[AccountStanding]) -> dict[tuple[str, str, str], float]:
    """Return, by budget, meter and scope, the share that is used of the account that is used most."""
    most: dict[tuple[str, str, str], float] = {}
    for one in found:
        for meter in one.meters:
            key = one.budget, meter.meter, one.scope.partition(":")[0]
            most[key] = max(most.get(key, 0.0), meter.ratio)
    return most


def used_accounts(store: DocumentStore, declared: Sequence[Budget], now_ms: int) -> dict[str, float]:
    """Return, by account, the share that is used of the meter that is used most. Raises Corrupt."""
    found: dict[str, float] = {}
    for budget in declared:
        prefix = f"{PREFIX}{budget.name}/{window_at(budget.per, now_ms)}/"
        for document in listing(store, prefix):
            found[document.name] = used_account(budget, document.name, document)
    return found


def used_account(budget: Budget, name: str, document: Document | None) -> float:
    """Return the share that is used of an account's meter that is used most. Raises Corrupt."""
    account = parsed(name)
    if account is None or document is None:
        return 0.0
    return max(meter.ratio for meter in standing(budget, account, document).meters)
