"""For each alert a situation of its own, as series for `promtool test rules`: it fires there, and no other.

Each series has a sample every 30 s: an hour in which all is well, then an hour of the situation.
"""

from __future__ import annotations

from msgspec import Struct

from ninelives.ops.metrics.families import FAMILIES, VALUES

CALM, AFTER = 120, 120
REASONS = VALUES["ninelives_runs_retrying"]["reason"]
Series = dict[str, str]


def steady(number: float) -> str:
    """Return a series that stays the same."""
    return f"{number}x{CALM + AFTER}"


def turns(before: float, after: float) -> str:
    """Return a series that changes when the situation begins."""
    return f"{before}x{CALM - 1} {after}x{AFTER}"


def _healthy() -> Series:
    of_agent, lane = 'agent="a"', 'agent="a",queue="default"'
    found = {
        "ninelives_store_up": steady(1),
        "ninelives_store_free_bytes": steady(100e9),
        "ninelives_audit_faults": steady(0),
        "ninelives_audit_last_success_timestamp_seconds": steady(3600),
        'ninelives_replication_lag_seconds{copy="s3"}': steady(1.5),
        'ninelives_notices_oldest_seconds{channel="on-call"}': steady(0),
        'ninelives_workers{host="m1"}': steady(2),
        "ninelives_halts": steady(1),
        "ninelives_halts_tripped": steady(0),
        "ninelives_halts_oldest_seconds": steady(600),
        "ninelives_breakers_open": steady(0),
        "ninelives_audit_log_lag_seconds": steady(2),
        'ninelives_budget_used_ratio{budget="day",meter="usd",scope="store"}': steady(0.4),
        'ninelives_budget_used_ratio{budget="each",meter="usd",scope="run"}': steady(1),
        f"ninelives_policies{{{of_agent}}}": steady(1),
        f"ninelives_runs_paused{{{lane}}}": steady(0),
        f"ninelives_runs_without_code{{{of_agent}}}": steady(0),
        f"ninelives_due_oldest_seconds{{{lane}}}": steady(0),
        f"ninelives_unrecovered_oldest_seconds{{{of_agent}}}": steady(0),
        f'ninelives_in_doubt{{{of_agent},action=""}}': steady(0),
        f'ninelives_runs_ended_total{{{of_agent},outcome="completed"}}': f"0+10x{CALM + AFTER}",
        f'ninelives_actions_total{{{of_agent},kind="resumable"}}': f"0+100x{CALM + AFTER}",
    }
    for name, sample in (
        ("runs", "runs"), ("runs_retrying", "runs_retrying"), ("recoveries", "recoveries_total"),
        ("runs_ended", "runs_ended_total"), ("steps_redone", "steps_redone_total"),
        ("duplicates", "duplicates_total"), ("verification_faults", "verification_faults_total"),
        ("worker_deaths", "worker_deaths_total"), ("inbox_oldest_seconds", "inbox_oldest_seconds"),
    ):  # fmt: skip
        labels = FAMILIES[f"ninelives_{name}"].labels
        outer = "".join(f'{label}="{known}",' for label, known in _OUTER if label in labels)
        for label, values in VALUES[f"ninelives_{name}"].items():
            for one in values:
                found.setdefault(f'ninelives_{sample}{{{outer}{label}="{one}"}}', steady(0))
    for cause in ("died", "stopped"):
        died = f'{of_agent},cause="{cause}"'
        for le in ("30.0", "60.0", "+Inf"):
            found[f'ninelives_recovery_duration_seconds_bucket{{{died},le="{le}"}}'] = steady(0)
        found[f"ninelives_recovery_duration_seconds_count{{{died}}}"] = steady(0)
    found['ninelives_runs{agent="a",queue="default",state="running"}'] = steady(3)
    return found


_OUTER = (("agent", "a"), ("queue", "default"))
HEALTHY = _healthy()


class Scenario(Struct, frozen=True):
    """A situation: the series that differ, the one alert that fires, and its labels besides the severity.

    It is judged so many minutes `after` the situation began. With `is_silent`, nothing is scraped any more.
    """

    alert: str
    name: str
    series: Series
    labels: dict[str, str] = {}
    is_silent: bool = False
    after: int = 21

    def all_series(self) -> Series:
        """Return the series of this situation, and those of what is well."""
        if self.is_silent:
            ending = {name: f"{_first(values)}x{CALM}" for name, values in HEALTHY.items()}
            return ending | self.series
        unknown = [name for name in self.series if name not in HEALTHY and "in_doubt" not in name]
        assert not unknown, unknown
        return HEALTHY | self.series


def _first(values: str) -> str:
    return values.partition("x")[0].partition("+")[0]


_AGENT = {"agent": "a"}
_SLOW = 'ninelives_recovery_duration_seconds_{}{{agent="a",cause="died"{}}}'
_STOPPED = 'ninelives_recovery_duration_seconds_{}{{agent="a",cause="stopped"{}}}'
SCENARIOS = (
    Scenario("", "all is well", {}),
    Scenario("NineLivesExporterDown", "nothing is scraped", {}, is_silent=True),
    Scenario(
        "NineLivesStoreDown",
        "the store is away",
        {"ninelives_store_up": turns(1, 0)},
        is_silent=True,
    ),
    Scenario("NineLivesStoreFull", "little is free", {"ninelives_store_free_bytes": turns(100e9, 0.5e9)}),
    Scenario(
        "NineLivesStoreFull",
        "it will be full in 3 hours",
        {"ninelives_store_free_bytes": f"{19e9}x{CALM - 1} {19e9}-{19e9 / 360:.0f}x{AFTER}"},
        after=55,
    ),
    Scenario(
        "NineLivesRecoverySlow",
        "a recovery took 45 s",
        {
            _SLOW.format("bucket", ',le="60.0"'): turns(0, 1),
            _SLOW.format("bucket", ',le="+Inf"'): turns(0, 1),
            _SLOW.format("count", ""): turns(0, 1),
        },
        after=5,
    ),
    Scenario(
        "NineLivesRecoverySlow",
        "a run has not recovered for 45 s",
        {'ninelives_unrecovered_oldest_seconds{agent="a"}': turns(0, 45)},
    ),
    Scenario(
        "",
        "a recovery took 2 s, and a deploy 45 s",
        {_SLOW.format("bucket", f',le="{le}"'): turns(0, 1) for le in ("30.0", "60.0", "+Inf")}
        | {_SLOW.format("count", ""): turns(0, 1), _STOPPED.format("count", ""): turns(0, 1)}
        | {_STOPPED.format("bucket", f',le="{le}"'): turns(0, 1) for le in ("60.0", "+Inf")}
        | {'ninelives_recoveries_total{agent="a",outcome="recovered"}': turns(0, 2)},
        after=5,
    ),
    Scenario(
        "NineLivesRecoveryRate",
        "one of 100 is quarantined",
        {
            'ninelives_recoveries_total{agent="a",outcome="recovered"}': turns(0, 99),
            'ninelives_recoveries_total{agent="a",outcome="quarantined"}': turns(0, 1),
        },
    ),
    Scenario(
        "NineLivesDuplicates",
        "20 of 1,200 actions are begun again",
        {
            'ninelives_actions_total{agent="a",kind="resumable"}': f"0+10x{CALM + AFTER}",
            'ninelives_steps_redone_total{agent="a",kind="resumable"}': turns(0, 20),
        },
    ),
    Scenario(
        "",
        "what was settled and not begun again is no duplicate",
        {
            'ninelives_actions_total{agent="a",kind="resumable"}': f"0+10x{CALM + AFTER}",
            'ninelives_steps_redone_total{agent="a",kind="once"}': turns(0, 20),
            'ninelives_steps_redone_total{agent="a",kind="decision"}': turns(0, 20),
        },
    ),
    Scenario(
        "NineLivesDuplicateProved",
        "a payment was made twice",
        {'ninelives_duplicates_total{kind="once"}': turns(0, 1)},
        after=5,
    ),
    Scenario(
        "NineLivesInconsistent",
        "a key is not what the journal says",
        {'ninelives_verification_faults_total{what="key"}': turns(0, 1)},
        after=5,
    ),
    Scenario("NineLivesInconsistent", "the audit found something", {"ninelives_audit_faults": turns(0, 2)}),
    Scenario(
        "NineLivesAuditLate",
        "the last audit was long ago",
        {"ninelives_audit_last_success_timestamp_seconds": turns(3600, -180_000)},
    ),
    Scenario(
        "NineLivesReplicationLag",
        "the replicator is dead",
        {'ninelives_replication_lag_seconds{copy="s3"}': turns(1.5, 90)},
        {"copy": "s3"},
    ),
    Scenario(
        "NineLivesNoticesStuck",
        "the receiver of notices is away",
        {'ninelives_notices_oldest_seconds{channel="on-call"}': turns(0, 900)},
        {"channel": "on-call"},
    ),
    Scenario(
        "",
        "a notice of yesterday is delivered after a minute",
        {'ninelives_notices_oldest_seconds{channel="on-call"}': f"0x{CALM - 1} 86400x2 0x{AFTER}"},
    ),
    Scenario(
        "NineLivesNoWorkers",
        "no worker, and a run waits",
        {
            'ninelives_workers{host="m1"}': turns(2, 0),
            'ninelives_due_oldest_seconds{agent="a",queue="default"}': turns(0, 900),
            'ninelives_runs_without_code{agent="a"}': turns(0, 3),
        },
    ),
    Scenario(
        "",
        "no worker, and all runs are paused",
        {
            'ninelives_workers{host="m1"}': turns(2, 0),
            'ninelives_runs_paused{agent="a",queue="default"}': turns(0, 3),
        },
    ),
    Scenario(
        "NineLivesStuck",
        "a run is due for 15 minutes",
        {'ninelives_due_oldest_seconds{agent="a",queue="default"}': turns(0, 900)},
        {"agent": "a", "queue": "default"},
    ),
    Scenario(
        "NineLivesNoCode",
        "no worker has the code",
        {
            'ninelives_due_oldest_seconds{agent="a",queue="default"}': turns(0, 900),
            'ninelives_runs_without_code{agent="a"}': turns(0, 3),
        },
        _AGENT,
    ),
    Scenario(
        "NineLivesPoliciesDiffer",
        "a worker was started without the policy",
        {'ninelives_policies{agent="a"}': turns(1, 2)},
        _AGENT,
    ),
    Scenario(
        "",
        "a new policy is rolled out",
        {'ninelives_policies{agent="a"}': f"1x{CALM - 1} 2x10 1x{AFTER}"},
        after=8,
    ),
    Scenario(
        "NineLivesTripped",
        "a trip has halted an agent",
        {"ninelives_halts": turns(1, 2), "ninelives_halts_tripped": turns(0, 1)},
    ),
    Scenario("NineLivesBreakerOpen", "a tool is sick", {"ninelives_breakers_open": turns(0, 1)}),
    Scenario(
        "NineLivesHaltOld", "a halt was forgotten", {"ninelives_halts_oldest_seconds": turns(600, 90_000)}
    ),
    Scenario(
        "NineLivesBudgetUsedUp",
        "the day's money is spent",
        {'ninelives_budget_used_ratio{budget="day",meter="usd",scope="store"}': turns(0.4, 0.97)},
        {"budget": "day", "meter": "usd"},
    ),
    Scenario(
        "NineLivesAuditLogLate",
        "nothing follows the journals",
        {"ninelives_audit_log_lag_seconds": turns(2, 900)},
    ),
    Scenario(
        "NineLivesCrashLoop",
        "a death every 30 s",
        {'ninelives_worker_deaths_total{cause="signal"}': f"0x{CALM - 1} 0+1x{AFTER}"},
    ),
    Scenario(
        "NineLivesOutage",
        "40 runs retry",
        {
            f'ninelives_runs_retrying{{agent="a",reason="{reason}"}}': f"0x{CALM - 1} {count}x20 0x99"
            for reason, count in zip(REASONS, (30, 10, 0, 0, 0), strict=True)
        },
        _AGENT,
        after=5,
    ),
    Scenario(
        "NineLivesRetrying",
        "one run retries for half an hour",
        {'ninelives_runs_retrying{agent="a",reason="rate_limited"}': turns(0, 1)},
        {"agent": "a", "reason": "rate_limited"},
    ),
    Scenario(
        "NineLivesRunsFailing",
        "one run of 200 fails",
        {'ninelives_runs_ended_total{agent="a",outcome="failed"}': turns(0, 1)},
        _AGENT,
        after=5,
    ),
    Scenario(
        "NineLivesInDoubt",
        "a refund is in doubt",
        {'ninelives_in_doubt{agent="a",action="refund"}': f"_x{CALM - 1} 1x{AFTER}"},
        {"agent": "a", "action": "refund"},
    ),
    Scenario(
        "NineLivesInboxOld",
        "a question waits since the day before",
        {'ninelives_inbox_oldest_seconds{kind="question"}': turns(0, 86_400)},
        {"kind": "question"},
    ),
)
