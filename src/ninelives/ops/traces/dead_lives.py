"""Lives of a run that were killed, from the recovery log: a killed process cannot end its own span."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ninelives.core.journal.recovery_log import Left
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.session import Cause
from ninelives.store import Store

UNSENT_MS = 60_000
"""A life shorter than this may have died before its exporter sent what it had written of those before it."""


class DeadLife(Struct, frozen=True):
    """A life that ended with its worker: from its claim, or the beginning of its session, to the death."""

    epoch: int
    began_ms: int
    died_ms: int


def dead_lives(store: Store, run: str, created_ms: int) -> list[DeadLife]:
    """Return the dead lives that no later life has surely written, latest first."""
    found: list[DeadLife] = []
    log = store.read_log(run=run)
    taken = {entry.session: entry.at_ms for entry in log if entry.kind is Happening.TAKEN}
    for entry in log:
        if entry.kind is not Happening.LEFT:
            continue
        left = msgspec.json.decode(entry.body, type=Left)
        if left.cause is Cause.STOPPED:
            break  # it ended its own span, and had written those before it
        session = store.read_session(entry.session)
        began_ms = taken.get(entry.session) or max(created_ms, session.started_ms if session else 0)
        found.append(DeadLife(left.epoch, min(began_ms, entry.at_ms), entry.at_ms))
        if entry.at_ms - began_ms > UNSENT_MS:
            break
    return found
