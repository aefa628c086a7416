"""Verify the audit log: the tree, its documents, anchored tree heads, and the runs of the store.

Reads only, also while workers write. Without an anchor, a writer that may change everything in the store can
make a log that verifies; docs/audit-log.md lists what is then not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ninelives.core.errors import Corrupt, UsageError
from ninelives.governance.audit_log import merkle, tiles
from ninelives.governance.audit_log.verification import log_walk
from ninelives.governance.audit_log.verification.run_checks import RunChecks, rows_of
from ninelives.store import DocumentStore, Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class AuditLogFinding(Struct, frozen=True):
    """Something that is not as it was written: where, and what."""

    where: str
    what: str


class AuditLogReport(Struct, frozen=True, kw_only=True):
    """What `verify` read and found. `anchored` is the size of the largest tree head that fits."""

    log: str
    is_on: bool
    entries: int
    root: str
    runs: int
    effects: int
    heads: int
    anchored: int
    is_signed: bool
    findings: list[AuditLogFinding]


class Verifiable(DocumentStore, Store, Protocol):
    """What is needed of a store."""


def verify(
    store: Verifiable,
    anchored: Sequence[tuple[str, bytes]] = (),
    key: Ed25519PublicKey | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> AuditLogReport:
    """Verify everything; with anchored tree heads, also that none of what they cover was changed.

    Raises UsageError if there is no log, and nothing says that there was one.
    """
    findings: dict[AuditLogFinding, None] = {}

    def report(where: str, what: str) -> None:
        findings[AuditLogFinding(where, what)] = None

    def count(done: int) -> None:
        if progress is not None:
            progress(done, total)

    log, is_on = _identity(store)
    beside = log_walk.read_beside(store, report)
    if not log and not beside.size and not anchored and not findings:
        raise UsageError("the store has no audit log", remedy="Switch it on with `ninelives audit on`")
    total = beside.size
    walked = log_walk.walk(store, log_walk.anchored_sizes(anchored), report, count)
    log_walk.check_beside(beside, walked, report)
    log_walk.check_state(store, walked, store.read_clock(), beside, report)
    sound = log_walk.check_heads(anchored, walked, log, key, report)
    checks = RunChecks(beside, walked, report)
    done = 0
    try:
        for row in rows_of(store):
            checks.check(store, row)
            done += 1
            total = max(total, walked.size + row.number)  # the first one is the newest
            count(walked.size + done)
    except Corrupt as error:
        report("runs", str(error))
    # What was pruned meanwhile is in entries that came after the walk.
    later = log_walk.walk(store, (), _ignore, _ignore) if checks.is_gone else walked
    checks.finish(later.cutoffs)
    return AuditLogReport(
        log=log,
        is_on=is_on,
        entries=walked.size,
        root=merkle.root_of(walked.frontier).hex(),
        runs=done,
        effects=checks.effects,
        heads=len(anchored),
        anchored=max((one.size for one in sound), default=0),
        is_signed=key is not None and bool(anchored),
        findings=list(findings),
    )


def _identity(store: DocumentStore) -> tuple[str, bool]:
    try:
        state, _ = tiles.read_state(store)
    except Corrupt:
        return "", False
    return (state.log, state.is_on) if state is not None else ("", False)


def _ignore(*_: object) -> None:
    """Report nothing: the same was reported before."""
