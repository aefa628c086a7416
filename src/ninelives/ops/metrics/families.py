"""Every metric: its name, type, labels and meaning. Nothing is exposed that is not declared here.

Labels are closed sets. No run, key, session or tenant is ever a label: each would be a series without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause
from ninelives.core.values.retry import Reason


class MetricType(StrEnum):
    """The type of a metric, as Prometheus knows it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Family(Struct, frozen=True):
    """A metric. A counter's samples are called NAME_total, a histogram's NAME_bucket, _sum and _count."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names under which its samples are queried."""
        if self.type is MetricType.COUNTER:
            return (f"{self.name}_total",)
        if self.type is MetricType.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


UNFINISHED = tuple(state.value for state in State if not state.is_final)
ENDED = tuple(state.value for state in State if state.is_final)
DEATHS = (Cause.DIED.value, Cause.EXPIRED.value)

VALUES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ninelives_runs": {"state": UNFINISHED},
    "ninelives_runs_retrying": {"reason": tuple(reason.value for reason in Reason)},
    "ninelives_runs_ended": {"outcome": ENDED},
    "ninelives_runs_left": {"cause": tuple(cause.value for cause in Cause)},
    "ninelives_recoveries": {"outcome": ("recovered", "escalated", "quarantined", "lost")},
    "ninelives_recovery_duration_seconds": {"cause": tuple(cause.value for cause in Cause)},
    "ninelives_detection_duration_seconds": {"cause": DEATHS},
    "ninelives_actions": {"kind": ("read", "resumable", "once", "keyed")},
    "ninelives_steps_redone": {"kind": ("decision", "read", "resumable", "once", "keyed")},
    "ninelives_tokens": {"direction": ("in", "out")},
    "ninelives_hedges": {"outcome": ("won", "lost", "refused")},
    "ninelives_cache_answers": {"near": ("exact", "words", "meaning", "miss")},
    "ninelives_duplicates": {"kind": ("recorded", "once", "key")},
    "ninelives_verifications": {"outcome": ("sound", "faulty")},
    "ninelives_verification_faults": {"what": ("chain", "outcome", "key", "resource", "state")},
    "ninelives_worker_deaths": {"cause": ("signal", "oom", "exit", "expired", "unknown")},
    "ninelives_inbox_items": {"kind": tuple(kind.value for kind in ItemKind)},
    "ninelives_inbox_oldest_seconds": {"kind": tuple(kind.value for kind in ItemKind)},
}
"""By metric and label, the values that exist from the start. `agent` and `queue` are those of the store."""

_GAUGE, _COUNTER, _HISTOGRAM = MetricType
_DECLARED: tuple[tuple[str, MetricType, str, str], ...] = (
    ("info", _GAUGE, "version store schema store_id", "Always 1; its labels say what is running."),
    ("store_up", _GAUGE, "", "Whether the store answered this scrape; if it is 0, all else is missing."),
    ("collect_duration_seconds", _GAUGE, "", "How long this scrape read the store."),
    ("store_bytes", _GAUGE, "part", "Bytes that the store takes, by part."),
    ("store_free_bytes", _GAUGE, "", "Bytes free on the disk of a SQLite store; missing for a server."),
    ("workers", _GAUGE, "host", "Worker processes that live."),
    ("worker_deaths", _COUNTER, "cause", "Worker processes that died; not those that were stopped."),
    ("runs", _GAUGE, "agent queue state", "Runs that have not ended."),
    ("runs_paused", _GAUGE, "agent queue", "Unfinished runs that a person has paused."),
    ("runs_without_code", _GAUGE, "agent", "Runs that wait while no live worker has their agent loaded."),
    ("runs_retrying", _GAUGE, "agent reason", "Runs that retry a step now, by why the last attempt failed."),
    ("runs_started", _COUNTER, "agent", "Runs that were created."),
    ("runs_ended", _COUNTER, "agent outcome", "Runs that ended; one that was retried ends again."),
    ("due_oldest_seconds", _GAUGE, "agent queue", "How long the first due run has waited for a worker."),
    ("runs_left", _COUNTER, "agent cause", "Runs that the end of a worker left without an owner."),
    ("runs_unrecovered", _GAUGE, "agent", "Runs whose worker died and that have not recovered yet."),
    (
        "unrecovered_oldest_seconds",
        _GAUGE,
        "agent",
        "How long the first of these has waited; 0 if there is none.",
    ),
    ("recoveries", _COUNTER, "agent outcome", "What became of runs that were left."),
    (
        "recovery_duration_seconds",
        _HISTOGRAM,
        "agent cause",
        "From the notice of a death until the run writes again.",
    ),
    (
        "detection_duration_seconds",
        _HISTOGRAM,
        "cause",
        "From a worker's last renewal to its death's notice.",
    ),
    ("decisions", _COUNTER, "agent", "Decisions executed and recorded; counted with each renewal."),
    ("actions", _COUNTER, "agent kind", "Actions executed and recorded; counted with each renewal."),
    ("tokens", _COUNTER, "agent direction", "Tokens that models reported; counted with each renewal."),
    ("model_requests", _COUNTER, "agent", "Requests of steps that declare alternatives, a hedge or a cache."),
    ("hedges", _COUNTER, "agent outcome", "Second requests; refused: the budget had nothing left."),
    ("fallbacks", _COUNTER, "agent", "Requests to an alternative because one had failed."),
    ("cache_answers", _COUNTER, "agent near", "Calls that the cache answered, or did not (miss)."),
    ("cache_tokens", _COUNTER, "agent", "Tokens that such answers had cost when they were asked for."),
    ("steps_replayed", _COUNTER, "agent", "Steps that a recovery found recorded and did not repeat."),
    ("steps_redone", _COUNTER, "agent kind", "Steps under way at a death: begun again, or settled first."),
    ("duplicates", _COUNTER, "kind", "Effects that were proved to have been done twice."),
    ("verifications", _COUNTER, "outcome", "Checks of recovered runs."),
    ("verification_faults", _COUNTER, "what", "Faults that these checks found."),
    ("saved_decisions", _COUNTER, "agent", "Decisions that recoveries did not pay for again."),
    ("saved_tokens", _COUNTER, "agent", "Tokens that recoveries did not pay for again."),
    ("saved_seconds", _COUNTER, "agent", "Duration of the steps that recoveries did not repeat."),
    ("in_doubt", _GAUGE, "agent action", "Actions whose outcome is not known; a person has to say."),
    ("inbox_items", _GAUGE, "kind", "Items that wait for a person."),
    ("inbox_oldest_seconds", _GAUGE, "kind", "How long the first of these has waited; 0 if there is none."),
    (
        "audit_last_success_timestamp_seconds",
        _GAUGE,
        "",
        "When the last audit came to its end; missing if there was none.",
    ),
    ("audit_duration_seconds", _GAUGE, "", "How long the last audit took."),
    ("audit_faults", _GAUGE, "", "How many faults the last audit found."),
    ("audit_log_lag_seconds", _GAUGE, "", "Since when the journals were not followed into the audit log."),
    (
        "budget_used_ratio",
        _GAUGE,
        "budget meter scope",
        "What is spent or reserved of a budget's limit now, of the account that is used most.",
    ),
    ("replication_lag_seconds", _GAUGE, "copy", "Age of the oldest commit that may not be copied yet."),
    ("replication_last_success_timestamp_seconds", _GAUGE, "copy", "When something was last copied."),
    ("replication_segments", _COUNTER, "copy", "Segments that were copied."),
    ("replication_errors", _COUNTER, "copy reason", "Errors of the replicator."),
    ("notices_waiting", _GAUGE, "channel", "Notices to people that are not delivered yet."),
    (
        "notices_oldest_seconds",
        _GAUGE,
        "channel",
        "Age of the oldest event of these; 0 if there is none.",
    ),
    ("halts", _GAUGE, "", "Halts in force."),
    ("halts_tripped", _GAUGE, "", "Those of them that a trip has declared, and no person."),
    (
        "halts_oldest_seconds",
        _GAUGE,
        "",
        "How long the first halt without an end has been in force; 0 if there is none.",
    ),
    ("breakers_open", _GAUGE, "", "Breakers that hold calls: not closed, and tried in the last 10 minutes."),
    (
        "policies",
        _GAUGE,
        "agent",
        "By how many different policies live workers judge its calls; having none counts as one.",
    ),
)
OPTIONAL = ("ninelives_audit_", "ninelives_replication_", "ninelives_notices_", "ninelives_budget_")
"""Metrics that begin so are missing until there was an audit, a copy, a notifier, or a budget in use."""

FAMILIES: Mapping[str, Family] = {
    f"ninelives_{name}": Family(f"ninelives_{name}", kind, tuple(labels.split()), text)
    for name, kind, labels, text in _DECLARED
}
"""By name, in the order in which they are exposed."""

SAMPLES = frozenset(sample for family in FAMILIES.values() for sample in family.samples)
"""All names that a query may use."""
