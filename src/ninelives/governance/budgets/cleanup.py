"""Remove accounts that nothing charges any more: of windows long over, and of runs that were forgotten.

Windows are kept for a while after their end: if the clock is turned back by less than that, the old account
is still there, with what was spent in it. A call that began in a removed window settles into an account
without its history, which the next cleanup removes. If we die here: a part is removed; the next cleanup
continues.
"""

from __future__ import annotations

from typing import Protocol

from ninelives.core.errors import StaleDocument
from ninelives.core.model.run import RunRow
from ninelives.governance.budgets.account_names import PREFIX, RUN, TREE, AccountName, parsed
from ninelives.governance.budgets.windows import end_ms
from ninelives.store import DocumentStore
from ninelives.views.documents import listing

KEPT_MS = 35 * 86_400_000
SHORT_KEPT_MS = 2 * 86_400_000
"""How long windows of minutes and hours are kept after their end."""
_SHORT = "T"


class KeepsRuns(DocumentStore, Protocol):
    """What is needed of a store."""

    def read_run(self, run: str) -> RunRow | None: ...


def clean(store: KeepsRuns, now_ms: int) -> int:
    """Remove accounts that nothing charges any more; return how many. Raises StoreError."""
    removed = 0
    for document in listing(store, PREFIX):
        account = parsed(document.name)
        if account is None or not _is_over(store, account, document.changed_ms, now_ms):
            continue
        try:
            # Only as it was read: a settlement that comes at this moment keeps it.
            store.write_document(document.name, None, version=document.version)
            removed += 1
        except StaleDocument:
            continue
    return removed


def _is_over(store: KeepsRuns, account: AccountName, changed_ms: int, now_ms: int) -> bool:
    try:
        ended_ms = end_ms(account.window)
    except ValueError:
        return False
    kept_ms = SHORT_KEPT_MS if _SHORT in account.window else KEPT_MS
    if ended_ms is not None:
        return max(ended_ms, changed_ms) < now_ms - kept_ms
    # A run that was pruned can still be looked up; one that was forgotten can never go on.
    is_of_run = account.scope in (RUN, TREE) and changed_ms < now_ms - kept_ms
    return is_of_run and store.read_run(account.value) is None
