"""Set and raise the limits of one account, by compare-and-set, and wake the runs that wait for it.

An account's own limits win over those of the policy, in the same transaction that reserves. They hold for
this account only: for the value of its scope, and for its window. What should hold always is written in the
policy. The account keeps by which person it was changed, and why; the audit log has it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ninelives.core.errors import RunFinished, StaleDocument, UnknownRun, UsageError
from ninelives.core.governance.accounts import AMOUNT_LIMIT, read, write
from ninelives.core.model.inbox import Signal
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.governance.budgets.account_names import STORE, AccountName, account_name, parsed, waits_for
from ninelives.governance.budgets.declarations import Budget
from ninelives.governance.budgets.publication import published
from ninelives.governance.budgets.standings import AccountStanding, standing
from ninelives.governance.budgets.windows import window_at
from ninelives.store import DocumentStore
from ninelives.views import documents

SIGNAL = "budget changed"
"""The signal that wakes a run; no code has to receive it."""
_CHANGES = "changes"
_MOST_CHANGES = 20
_PAGE = 500
_TEXT_CHARACTERS = 500
Log = Callable[[str, Mapping[str, object]], object]
"""Appends a change to the audit log, under an id: the same id is appended once."""


class ChangesBudgets(DocumentStore, Protocol):
    """What is needed of a store."""

    def list_runs(self, query: RunQuery) -> list[RunRow]: ...

    def send_signal(self, run: str, name: str, body: bytes, *, id: str | None = None) -> Signal: ...


class Change(Struct, frozen=True, kw_only=True):
    """A change of an account's limits, as the account keeps it."""

    id: str
    at_ms: int
    by: str
    reason: str
    before: dict[str, int]
    after: dict[str, int]


class Changed(Struct, frozen=True, kw_only=True):
    """What a change led to: how the account stands, and the runs that were woken."""

    account: AccountStanding
    woken: tuple[str, ...]


def change(
    store: ChangesBudgets,
    name: str,
    value: str | None,
    amounts: Mapping[str, int],
    *,
    raises: bool,
    by: str,
    reason: str,
    log: Log,
) -> Changed:
    """Set the limits of an account to amounts, or raise them by these. Raises UsageError, StoreError.

    If we die here: the limits are as before or changed, and by which person is kept with them. A run that
    was not woken asks again within a minute; the next change adds to the audit log what is missing there.
    """
    for what, text in (("--by", by), ("--reason", reason)):
        if not text.strip() or len(text) > _TEXT_CHARACTERS or not text.isprintable():
            raise UsageError(
                f"{what} is {text!r}", remedy=f"Write one line of at most {_TEXT_CHARACTERS} characters"
            )
    budget = _declared(store, name, value, amounts)
    account = account_name(name, window_at(budget.per, store.read_clock()), budget.scope, value or "")
    changes = _written(store, budget, account, amounts, raises=raises, by=by, reason=reason)
    for one in changes:
        log(f"budget/{account}/{one.id}", _facts(account, one))
    # CRASH: changed, and the runs that wait for it not woken: each asks again within a minute.
    found = documents.find(store, account)
    named = parsed(account)
    if named is None:
        raise UsageError(f"{account!r} is no account")
    stands = standing(budget, named, found)
    return Changed(account=stands, woken=tuple(_wake(store, name, named, changes[-1].id)))


def _declared(store: DocumentStore, name: str, value: str | None, amounts: Mapping[str, int]) -> Budget:
    known = {one.name: one for one in published(store)}
    if name not in known:
        raise UsageError(
            f"no process has declared a budget {name!r} in this store",
            remedy=f"There are: {', '.join(known) or 'none; a worker with a policy declares them'}",
        )
    budget = known[name]
    if (budget.scope == STORE) is not (value is None):
        raise UsageError(
            f"budget {name!r} has the scope {budget.scope!r}",
            remedy="Leave out the value" if value is not None else f"Name the value of {budget.scope}",
        )
    if not amounts:
        raise UsageError("no limit is given", remedy=f"Give --{' or --'.join(budget.limits)}")
    for meter, amount in amounts.items():
        if meter not in budget.limits:
            raise UsageError(
                f"budget {name!r} does not limit {meter}", remedy=f"It limits {', '.join(budget.limits)}"
            )
        if not 0 < amount < AMOUNT_LIMIT // 2:
            raise UsageError(f"{meter}: the amount must be above 0")
    return budget


def _written(
    store: ChangesBudgets,
    budget: Budget,
    account: str,
    amounts: Mapping[str, int],
    *,
    raises: bool,
    by: str,
    reason: str,
) -> list[Change]:
    """Write the account with its new limits; return the changes that it keeps, the newest last."""
    while True:
        found = documents.find(store, account)
        known = read(account, found.body if found is not None else None)
        version = found.version if found is not None else 0
        before = {meter: known.limits.get(meter, budget.limits[meter]) for meter in amounts}
        after = {meter: amount + before[meter] * raises for meter, amount in amounts.items()}
        changes = _kept(known.rest.get(_CHANGES))
        at_ms = store.read_clock()
        changes.append(
            Change(id=f"{at_ms}/{version + 1}", at_ms=at_ms, by=by, reason=reason, before=before, after=after)
        )
        changes = changes[-_MOST_CHANGES:]
        known.limits.update(after)
        known.rest[_CHANGES] = changes
        try:
            store.write_document(account, write(known), version=version)
        except StaleDocument:
            continue  # a call was charged at this moment
        return changes


def _kept(found: object) -> list[Change]:
    try:
        return msgspec.convert(found or [], list[Change])
    except msgspec.ValidationError:
        return []  # of another version; the audit log has them


def _facts(account: str, one: Change) -> dict[str, Any]:
    return {"account": account, "by": one.by, "reason": one.reason, "before": one.before, "after": one.after}


def _wake(store: ChangesBudgets, name: str, account: AccountName, change_id: str) -> list[str]:
    text, woken, after = waits_for(name, account.whose), list[str](), None
    while page := store.list_runs(RunQuery(states=(State.CHECKPOINTED,), limit=_PAGE, after=after)):
        after = page[-1].number
        for run in page:
            if text in run.waits:
                try:
                    store.send_signal(run.id, SIGNAL, b"null", id=f"{name}/{change_id}")
                except (RunFinished, UnknownRun):
                    continue
                woken.append(run.id)
    return woken
