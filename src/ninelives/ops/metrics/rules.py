"""The alert rules: what wakes a person, and what can wait until the morning.

Traps that these rules avoid: a histogram knows only recoveries that have ended, so a gauge of those that have
not ended is asked, too; `increase()` extrapolates, so it is compared with 0 and never shown as a count; a
denominator may be 0, so it is clamped or filtered; a counter that begins with 1 has no increase, so all
begin with 0.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How soon a person has to act."""

    PAGE = "page"  # now
    TICKET = "ticket"  # in working hours


class RecordingRule(Struct, frozen=True):
    """A figure that Prometheus computes and keeps."""

    name: str
    expr: str


class AlertRule(Struct, frozen=True):
    """An alert: it fires when `expr` has had a result for `wait`. `anchor` is its section in the runbook."""

    name: str
    severity: Severity
    expr: str
    wait: str
    summary: str
    anchor: str


RECORDED = (
    RecordingRule(
        "ninelives:recovery_duration_seconds:p99_1h",
        "histogram_quantile(0.99, sum by (le) (increase(ninelives_recovery_duration_seconds_bucket[1h])))",
    ),
    RecordingRule(
        "ninelives:duplicate_ratio:1h",
        'sum(increase(ninelives_steps_redone_total{kind=~"read|resumable"}[1h]))\n'
        "  / clamp_min(sum(increase(ninelives_actions_total[1h])), 1)",
    ),
    RecordingRule(
        "ninelives:recovery_ratio:1h",
        'sum(increase(ninelives_recoveries_total{outcome="recovered"}[1h]))\n'
        # Without recoveries it is absent: a 0 of before the first one would fire the alert with that one.
        "  / (sum(increase(ninelives_recoveries_total[1h])) > 0)",
    ),
    RecordingRule(
        "ninelives:retrying_ratio",
        "sum by (agent) (ninelives_runs_retrying)\n"
        "  / clamp_min(sum by (agent) (ninelives_runs_retrying)"
        ' + sum by (agent) (ninelives_runs{state="running"}), 1)',
    ),
)

_PAGE, _TICKET = Severity
ALERTS = (
    AlertRule(
        "NineLivesExporterDown",
        _PAGE,
        "absent(ninelives_store_up)",
        "2m",
        "No metrics of Nine Lives are scraped, so no other alert can fire",
        "exporter-down",
    ),
    AlertRule(
        "NineLivesStoreDown",
        _PAGE,
        "max(ninelives_store_up) == 0",
        "1m",
        "The store does not answer",
        "store-down",
    ),
    AlertRule(
        "NineLivesStoreFull",
        _PAGE,
        "min(ninelives_store_free_bytes) < 1e9\n"
        "or (min(predict_linear(ninelives_store_free_bytes[1h], 4 * 3600)) < 0\n"
        "  and min(ninelives_store_free_bytes) < 20e9)",
        "5m",
        "The disk of the store is almost full, or will be within 4 hours",
        "store-full",
    ),
    AlertRule(
        "NineLivesRecoverySlow",
        _PAGE,
        'sum(increase(ninelives_recovery_duration_seconds_count{cause!="stopped"}[10m]))\n'
        "  - sum(increase("
        'ninelives_recovery_duration_seconds_bucket{cause!="stopped",le="30.0"}[10m])) > 0.5\n'
        "or max(ninelives_unrecovered_oldest_seconds) > 30",
        "0s",
        "A run took longer than 30 s to recover from a death, or has not recovered yet",
        "recovery-slow",
    ),
    AlertRule(
        "NineLivesRecoveryRate",
        _PAGE,
        "ninelives:recovery_ratio:1h < 0.999 and sum(increase(ninelives_recoveries_total[1h])) > 0",
        "0s",
        "Fewer than 99.9 % of the runs that were left have recovered by themselves",
        "recovery-rate",
    ),
    AlertRule(
        "NineLivesDuplicates",
        _TICKET,
        "ninelives:duplicate_ratio:1h > 0.001 and sum(increase(ninelives_actions_total[1h])) > 100",
        "5m",
        "More than 0.1 % of actions were begun again after a death",
        "duplicates",
    ),
    AlertRule(
        "NineLivesDuplicateProved",
        _PAGE,
        "sum(increase(ninelives_duplicates_total[10m])) > 0",
        "0s",
        "A recorded or non-resumable step was executed twice",
        "duplicate-proved",
    ),
    AlertRule(
        "NineLivesInconsistent",
        _PAGE,
        'sum(increase(ninelives_verification_faults_total{what!="resource"}[15m])) > 0\n'
        "or max(ninelives_audit_faults) > 0",
        "0s",
        "The state of a run after a recovery, or of the store, is not what it was",
        "inconsistent",
    ),
    AlertRule(
        "NineLivesNoWorkers",
        _PAGE,
        "sum(ninelives_workers) == 0\n"
        'and sum(ninelives_runs{state=~"pending|running|checkpointed"}) - sum(ninelives_runs_paused) > 0',
        "1m",
        "No worker lives, and runs wait",
        "no-workers",
    ),
    AlertRule(
        "NineLivesStuck",
        _PAGE,
        "max by (agent, queue) (ninelives_due_oldest_seconds) > 60 and on () sum(ninelives_workers) > 0\n"
        "unless on (agent) ninelives_runs_without_code > 0",
        "2m",
        "Runs of {{ $labels.agent }} are due and no worker takes them",
        "stuck",
    ),
    AlertRule(
        "NineLivesNoCode",
        _TICKET,
        "max by (agent) (ninelives_runs_without_code) > 0 and on () sum(ninelives_workers) > 0",
        "10m",
        "Runs of {{ $labels.agent }} wait, and no live worker has its code",
        "no-code",
    ),
    AlertRule(
        "NineLivesPoliciesDiffer",
        _PAGE,
        "max by (agent) (ninelives_policies) > 1",
        "10m",
        "Live workers judge the calls of {{ $labels.agent }} by different policies, or one has none",
        "policies-differ",
    ),
    AlertRule(
        "NineLivesCrashLoop",
        _PAGE,
        "sum(increase(ninelives_worker_deaths_total[10m])) > 10",
        "0s",
        "Workers die again and again",
        "crash-loop",
    ),
    AlertRule(
        "NineLivesTripped",
        _PAGE,
        "max(ninelives_halts_tripped) > 0",
        "0s",
        "A trip has halted something: too many denials or failures. It stays halted until a person lifts it",
        "tripped",
    ),
    AlertRule(
        "NineLivesBreakerOpen",
        _PAGE,
        "max(ninelives_breakers_open) > 0",
        "10m",
        "Calls of a step wait for its breaker: what it calls has been failing for 10 minutes",
        "breaker-open",
    ),
    AlertRule(
        "NineLivesOutage",
        _PAGE,
        "(ninelives:retrying_ratio >= 0.5 and on (agent) sum by (agent) (ninelives_runs_retrying) >= 5)\n"
        'or (sum by (agent) (increase(ninelives_runs_ended_total{outcome="failed"}[10m])) >= 5\n'
        '  and sum by (agent) (increase(ninelives_runs_ended_total{outcome="failed"}[10m]))\n'
        "    >= 0.5 * sum by (agent) (increase(ninelives_runs_ended_total[10m])))",
        "1m",
        "Most runs of {{ $labels.agent }} retry or fail: what they call is probably down",
        "outage",
    ),
    AlertRule(
        "NineLivesRetrying",
        _TICKET,
        "sum by (agent, reason) (ninelives_runs_retrying) > 0",
        "15m",
        "Runs of {{ $labels.agent }} have been retrying a step for 15 minutes ({{ $labels.reason }})",
        "retrying",
    ),
    AlertRule(
        "NineLivesRunsFailing",
        _TICKET,
        'sum by (agent) (increase(ninelives_runs_ended_total{outcome="failed"}[15m])) > 0',
        "0s",
        "Runs of {{ $labels.agent }} fail",
        "runs-failing",
    ),
    AlertRule(
        "NineLivesInDoubt",
        _PAGE,
        "sum by (agent, action) (ninelives_in_doubt) > 0",
        "5m",
        "It is not known whether {{ $labels.action }} of {{ $labels.agent }} was done; a person has to say",
        "in-doubt",
    ),
    AlertRule(
        "NineLivesInboxOld",
        _TICKET,
        "max by (kind) (ninelives_inbox_oldest_seconds) > 3600",
        "0s",
        "An item of the inbox ({{ $labels.kind }}) has waited for a person for an hour",
        "inbox-old",
    ),
    AlertRule(
        "NineLivesHaltOld",
        _TICKET,
        "max(ninelives_halts_oldest_seconds) > 86400",
        "0s",
        "Something has been halted for a day, without an end: was it forgotten?",
        "halt-old",
    ),
    AlertRule(
        "NineLivesBudgetUsedUp",
        _TICKET,
        'max by (budget, meter) (ninelives_budget_used_ratio{scope!~"run|tree"}) > 0.9',
        "10m",
        "Budget {{ $labels.budget }} is used up, or almost: calls beyond it are denied, or wait",
        "budget-used-up",
    ),
    AlertRule(
        "NineLivesReplicationLag",
        _PAGE,
        "max by (copy) (ninelives_replication_lag_seconds) > 60",
        "2m",
        "The copy {{ $labels.copy }} is more than a minute behind: that much would be lost with this store",
        "replication-lag",
    ),
    AlertRule(
        "NineLivesAuditLate",
        _TICKET,
        "time() - max(ninelives_audit_last_success_timestamp_seconds) > 2 * 86400",
        "0s",
        "The store has not been audited for two days",
        "audit-late",
    ),
    AlertRule(
        "NineLivesAuditLogLate",
        _TICKET,
        "max(ninelives_audit_log_lag_seconds) > 300",
        "5m",
        "What was decided in the last minutes is not in the audit log: nothing follows the journals",
        "audit-log-late",
    ),
    AlertRule(
        "NineLivesNoticesStuck",
        _PAGE,
        "max by (channel) (ninelives_notices_oldest_seconds) > 600",
        "5m",
        "Notices to {{ $labels.channel }} are not delivered: people do not learn what waits for them",
        "notices-stuck",
    ),
)
"""In the order in which a person should read them: the first that fires explains those after it."""
