"""What a person is told of an item: as it was asked, and what has become known since."""

from __future__ import annotations

import pytest

from ninelives.core.journal.answers import MAY_ACT, STARTED_BY, ItemBody, write_item_body
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.model.session import Cause, Evidence, NewSession
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.views.inbox_text import entry, up_to_date

YES = "yes, as far as is known"


def doubt() -> Item:
    """Return a question about an action that `w` has started."""
    body = write_item_body(ItemBody(what="Did it happen?", evidence={STARTED_BY: "w", MAY_ACT: YES}))
    return Item(
        id="i",
        run="r",
        kind=ItemKind.DOUBT,
        step="",
        digest=b"d",
        body=body,
        state=ItemState.OPEN,
        opened_ms=1,
        to="",
        deadline_ms=None,
    )


@pytest.mark.parametrize("is_gone", [False, True])
def test_that_what_is_in_doubt_can_no_longer_act_is_told_when_it_is_known(is_gone: bool) -> None:
    store = MemoryStore(SystemClock())
    assert up_to_date(store, entry(doubt())).evidence[MAY_ACT] == YES
    store.register_session(NewSession(id="w", host="here", pid=1))
    assert up_to_date(store, entry(doubt())).evidence[MAY_ACT] == YES
    store.end_sessions(["w"], Cause.EXPIRED, evidence={"w": Evidence(is_gone=is_gone)})
    told = up_to_date(store, entry(doubt())).evidence[MAY_ACT]
    assert told.startswith("no: its worker is gone") is is_gone
