"""What audits, replicators, notifiers, halts and breakers say in documents, as samples.

What never ran has no samples; without halts and breakers, there are none in force.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ninelives.core.governance.breaker import BreakerState
from ninelives.core.model.document import HALTS, Document
from ninelives.governance import breakers
from ninelives.governance.halts import HaltList
from ninelives.ops.notify import state
from ninelives.ops.notify.state import NotifyState

AUDIT, COPIES, NOTICES, BREAKERS = "audit/last", "replication/", state.NAME, breakers.PREFIX
AUDIT_LOG_STATE, AUDIT_LOG_FOLLOWER = "auditlog/state", "auditlog/follower"
_Samples = dict[str, dict[tuple[str, ...], float]]


class AuditReport(Struct, frozen=True):
    """What metrics need of the last audit that came to its end."""

    finished_ms: int
    seconds: float
    faults: int = 0


class ReplicationReport(Struct, frozen=True):
    """What metrics and status need of a replicator's report. `lag_seconds` was so when it was written."""

    written_ms: int
    lag_seconds: float = 0.0
    last_success_ms: int = 0
    segments: int = 0
    errors: dict[str, int] = {}
    fault: str = ""
    is_refused: bool = False


class LogSwitch(Struct, frozen=True):
    """Whether the audit log is on."""

    is_on: bool = False


class FollowerReport(Struct, frozen=True):
    """Up to which moment all runs that ended are in the audit log; 0: none was followed yet."""

    through_ms: int = 0


def samples_of(documents: Sequence[Document], now_ms: int) -> _Samples:
    """Return the samples of all reports. A document that cannot be read is no report."""
    values: _Samples = {"ninelives_breakers_open": {(): 0}, **_halts(HaltList(), now_ms)}
    is_logged, through_ms = False, 0
    for document in documents:
        try:
            if document.name == AUDIT:
                values |= _audit(msgspec.json.decode(document.body, type=AuditReport))
            elif document.name == AUDIT_LOG_STATE:
                is_logged = msgspec.json.decode(document.body, type=LogSwitch).is_on
            elif document.name == AUDIT_LOG_FOLLOWER:
                through_ms = msgspec.json.decode(document.body, type=FollowerReport).through_ms
            elif document.name == NOTICES:
                values |= _notices(msgspec.json.decode(document.body, type=NotifyState), now_ms)
            elif document.name == HALTS:
                values |= _halts(msgspec.json.decode(document.body, type=HaltList), now_ms)
            elif document.name.startswith(BREAKERS):
                state = msgspec.json.decode(document.body, type=BreakerState)
                is_used = now_ms - state.until_ms <= breakers.UNUSED_MS
                values["ninelives_breakers_open"][()] += state.state != "closed" and is_used
            elif document.name.startswith(COPIES):
                copy = msgspec.json.decode(document.body, type=ReplicationReport)
                for name, found in _replication(document.name.removeprefix(COPIES), copy, now_ms).items():
                    values.setdefault(name, {}).update(found)
        except msgspec.DecodeError:
            continue
    if is_logged and through_ms:
        values["ninelives_audit_log_lag_seconds"] = {(): max(0, now_ms - through_ms) / 1000}
    return values


def _halts(known: HaltList, now_ms: int) -> _Samples:
    found = [one for one in known.halts if not one.is_over(now_ms)]
    since_ms = min((one.at_ms for one in found if one.until_ms is None), default=now_ms)
    return {
        "ninelives_halts": {(): len(found)},
        "ninelives_halts_tripped": {(): sum(one.is_trip for one in found)},
        "ninelives_halts_oldest_seconds": {(): max(0, now_ms - since_ms) / 1000},
    }


def _audit(report: AuditReport) -> _Samples:
    return {
        "ninelives_audit_last_success_timestamp_seconds": {(): report.finished_ms / 1000},
        "ninelives_audit_duration_seconds": {(): report.seconds},
        "ninelives_audit_faults": {(): report.faults},
    }


def _notices(known: NotifyState, now_ms: int) -> _Samples:
    return {
        "ninelives_notices_waiting": {(name,): one.waiting for name, one in known.channels.items()},
        "ninelives_notices_oldest_seconds": {
            (name,): max(0, now_ms - one.oldest_waiting_ms) / 1000 if one.oldest_waiting_ms else 0.0
            for name, one in known.channels.items()
        },
    }


def _replication(copy: str, report: ReplicationReport, now_ms: int) -> _Samples:
    # A replicator that died writes no more: its lag grows with the time since its last report.
    silent_seconds = max(0, now_ms - report.written_ms) / 1000
    errors: dict[tuple[str, ...], float] = {(copy, ""): 0.0}
    errors |= {(copy, reason): float(count) for reason, count in report.errors.items()}
    return {
        "ninelives_replication_lag_seconds": {(copy,): report.lag_seconds + silent_seconds},
        "ninelives_replication_last_success_timestamp_seconds": {(copy,): report.last_success_ms / 1000},
        "ninelives_replication_segments": {(copy,): report.segments},
        "ninelives_replication_errors": errors,
    }
