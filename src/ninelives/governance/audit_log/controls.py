"""Controls of runs by people and programs from outside, logged before they are given.

If we die here: an entry for a control that was not given, never a control without an entry.
"""

from __future__ import annotations

import secrets

from ninelives.governance.audit_log.entries import append, is_on
from ninelives.store import DocumentStore


def note_control(store: DocumentStore, control: str, run: str, by: str) -> None:
    """Log that a control of a run is about to be given; does nothing if the log is off."""
    if is_on(store):
        append(store, "control", id=f"control/{secrets.token_hex(16)}", control=control, run=run, by=by)
        # CRASH: an entry for a control that was not given.
