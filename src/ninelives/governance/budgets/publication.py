"""What is declared, as documents: so that commands, status and metrics know budgets without a policy file.

The last process that began with a declaration wins. Nothing is enforced by these documents: each process
enforces what its own policy declares, and the limits that an account has of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ninelives.core.errors import StaleDocument
from ninelives.governance.budgets.declarations import Budget
from ninelives.store import DocumentStore
from ninelives.views import documents

DECLARED = "declared-budget/"
_TRIES = 5


def publish(store: DocumentStore, declared: Sequence[Budget]) -> None:
    """Write each declaration that differs from what is known. If we die here: the next process does it."""
    for budget in declared:
        name, body = DECLARED + budget.name, msgspec.json.encode(budget)
        for _ in range(_TRIES):
            known = documents.find(store, name)
            if known is not None and known.body == body:
                break
            try:
                store.write_document(name, body, version=known.version if known is not None else 0)
                break
            except StaleDocument:
                continue  # another process has just written it


def published(store: DocumentStore) -> list[Budget]:
    """Return all budgets that were declared, by name; without those that this version cannot read."""
    found = (documents.decoded(one, Budget) for one in documents.listing(store, DECLARED))
    return [one for one in found if one is not None]
