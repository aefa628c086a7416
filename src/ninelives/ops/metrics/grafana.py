"""The Grafana dashboard: plain dicts, one small table of panels."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

SCHEMA_VERSION = 39  # Grafana 11; later versions migrate it when they load it
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _HEIGHT = 24, 8


class Panel(Struct, frozen=True):
    """A panel: its title, its unit, and its queries, each with a legend. `at_most` is where it turns red."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 8
    kind: str = "timeseries"
    at_most: float | None = None
    text: str = ""


def _number(title: str, unit: str, expr: str, at_most: float | None, text: str) -> Panel:
    return Panel(title, unit, ((expr, ""),), 4, "stat", at_most, text)


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it healthy",
        (
            _number("Store", "short", "1 - max(ninelives_store_up)", 1, "0: the store answers."),
            _number("Workers", "short", "sum(ninelives_workers)", None, "Worker processes that live."),
            _number(
                "Recovery, p99 of 1 h",
                "s",
                "ninelives:recovery_duration_seconds:p99_1h",
                30,
                "From the notice of a death until the run writes again.",
            ),
            _number(
                "Duplicates, 1 h",
                "percentunit",
                "ninelives:duplicate_ratio:1h",
                0.001,
                "Actions begun again after a death, of all actions.",
            ),
            _number(
                "Recovered, 1 h",
                "percentunit",
                "ninelives:recovery_ratio:1h or vector(1)",
                None,
                "Of the runs that were left. Without deaths it is 0 of 0.",
            ),
            _number(
                "Faults found, 1 h",
                "short",
                "sum(increase(ninelives_verification_faults_total[1h]))"
                " + sum(increase(ninelives_duplicates_total[1h]))",
                0.5,
                "By checks after recoveries. `increase()` extrapolates: only 0 is exact.",
            ),
        ),
    ),
    (
        "Runs",
        (
            Panel("Unfinished runs", "short", (("sum by (state) (ninelives_runs)", "{{state}}"),)),
            Panel(
                "Runs that end",
                "ops",
                (("sum by (outcome) (rate(ninelives_runs_ended_total[5m]))", "{{outcome}}"),),
            ),
            Panel(
                "Runs that retry a step",
                "short",
                (("sum by (agent, reason) (ninelives_runs_retrying)", "{{agent}} {{reason}}"),),
                at_most=5,
            ),
            Panel(
                "First due run waits",
                "s",
                (("max by (agent, queue) (ninelives_due_oldest_seconds)", "{{agent}} {{queue}}"),),
                at_most=60,
            ),
            Panel(
                "Not run: paused, or no worker has the code",
                "short",
                (
                    ("sum(ninelives_runs_paused)", "paused"),
                    ("sum by (agent) (ninelives_runs_without_code)", "{{agent}}: no code"),
                ),
            ),
            Panel(
                "Runs that start",
                "ops",
                (("sum by (agent) (rate(ninelives_runs_started_total[5m]))", "{{agent}}"),),
            ),
        ),
    ),
    (
        "Deaths and recoveries",
        (
            Panel(
                "Workers that died",
                "ops",
                (("sum by (cause) (rate(ninelives_worker_deaths_total[5m]))", "{{cause}}"),),
            ),
            Panel(
                "Runs that were left",
                "ops",
                (
                    ("sum by (cause) (rate(ninelives_runs_left_total[5m]))", "{{cause}}"),
                    ("sum(ninelives_runs_unrecovered)", "not recovered yet"),
                ),
            ),
            Panel(
                "First unrecovered run waits",
                "s",
                (("max by (agent) (ninelives_unrecovered_oldest_seconds)", "{{agent}}"),),
                at_most=30,
            ),
            Panel(
                "Recovery",
                "s",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (le) "
                        "(rate(ninelives_recovery_duration_seconds_bucket[15m])))",
                        f"p{share * 100:g}",
                    )
                    for share in (0.5, 0.99)
                ),
                at_most=30,
            ),
            Panel(
                "Detection",
                "s",
                (
                    (
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(ninelives_detection_duration_seconds_bucket[15m])))",
                        "p99",
                    ),
                ),
            ),
            Panel(
                "What became of them",
                "ops",
                (
                    ("sum by (outcome) (rate(ninelives_recoveries_total[5m]))", "{{outcome}}"),
                    ("sum by (outcome) (rate(ninelives_verifications_total[5m]))", "checks: {{outcome}}"),
                ),
            ),
        ),
    ),
    (
        "Steps",
        (
            Panel(
                "Steps",
                "ops",
                (
                    ("sum by (agent) (rate(ninelives_decisions_total[5m]))", "{{agent}} decisions"),
                    ("sum by (agent, kind) (rate(ninelives_actions_total[5m]))", "{{agent}} {{kind}}"),
                ),
            ),
            Panel(
                "Tokens",
                "ops",
                (
                    (
                        "sum by (agent, direction) (rate(ninelives_tokens_total[5m]))",
                        "{{agent}} {{direction}}",
                    ),
                ),
            ),
            Panel(
                "Model requests",
                "ops",
                (
                    ("sum by (agent) (rate(ninelives_model_requests_total[5m]))", "{{agent}} requests"),
                    ("sum by (agent, outcome) (rate(ninelives_hedges_total[5m]))", "{{agent}} {{outcome}}"),
                    ("sum by (agent) (rate(ninelives_fallbacks_total[5m]))", "{{agent}} fallbacks"),
                    ("sum by (agent, near) (rate(ninelives_cache_answers_total[5m]))", "{{agent}} {{near}}"),
                ),
            ),
            Panel(
                "After a death",
                "ops",
                (
                    ("sum(rate(ninelives_steps_replayed_total[5m]))", "found recorded"),
                    ("sum by (kind) (rate(ninelives_steps_redone_total[5m]))", "under way: {{kind}}"),
                ),
            ),
            Panel(
                "Saved by recoveries, 24 h",
                "short",
                (
                    (
                        "sum by (agent) (increase(ninelives_saved_decisions_total[24h]))",
                        "{{agent}} decisions",
                    ),
                    ("sum by (agent) (increase(ninelives_saved_tokens_total[24h]))", "{{agent}} tokens"),
                    ("sum by (agent) (increase(ninelives_saved_seconds_total[24h]))", "{{agent}} seconds"),
                ),
            ),
        ),
    ),
    (
        "People",
        (
            Panel("Inbox", "short", (("sum by (kind) (ninelives_inbox_items)", "{{kind}}"),)),
            Panel(
                "First item waits",
                "s",
                (("max by (kind) (ninelives_inbox_oldest_seconds)", "{{kind}}"),),
                at_most=3600,
            ),
            Panel(
                "In doubt",
                "short",
                (("sum by (agent, action) (ninelives_in_doubt)", "{{agent}} {{action}}"),),
                at_most=1,
            ),
        ),
    ),
    (
        "Governing",
        (
            Panel(
                "Halts, and breakers that hold calls",
                "short",
                (
                    ("max(ninelives_halts)", "halts"),
                    ("max(ninelives_halts_tripped)", "by trips"),
                    ("max(ninelives_breakers_open)", "breakers"),
                ),
                at_most=1,
            ),
            Panel(
                "First halt without an end",
                "s",
                (("max(ninelives_halts_oldest_seconds)", "in force"),),
                at_most=86_400,
            ),
            Panel(
                "Policies of live workers",
                "short",
                (("max by (agent) (ninelives_policies)", "{{agent}}"),),
                at_most=2,
            ),
            Panel(
                "Budgets: used of the fullest account",
                "percentunit",
                (("max by (budget, meter) (ninelives_budget_used_ratio)", "{{budget}} {{meter}}"),),
                12,
                at_most=0.9,
            ),
            Panel(
                "Audit log is behind",
                "s",
                (("max(ninelives_audit_log_lag_seconds)", "behind"),),
                12,
                at_most=300,
            ),
        ),
    ),
    (
        "Store",
        (
            Panel("Size", "bytes", (("sum by (part) (ninelives_store_bytes)", "{{part}}"),)),
            Panel(
                "Free, or what is used of a server",
                "bytes",
                (("min(ninelives_store_free_bytes) or sum(ninelives_store_bytes)", "bytes"),),
            ),
            Panel("A scrape takes", "s", (("max(ninelives_collect_duration_seconds)", "read"),), at_most=5),
            Panel(
                "Copies are behind",
                "s",
                (("max by (copy) (ninelives_replication_lag_seconds)", "{{copy}}"),),
                at_most=60,
            ),
            Panel(
                "Copied",
                "ops",
                (
                    ("sum by (copy) (rate(ninelives_replication_segments_total[5m]))", "{{copy}}"),
                    ("sum by (copy) (rate(ninelives_replication_errors_total[5m]))", "{{copy}}: errors"),
                ),
            ),
            Panel(
                "Last audit",
                "s",
                (
                    ("time() - max(ninelives_audit_last_success_timestamp_seconds)", "ended ago"),
                    ("max(ninelives_audit_duration_seconds)", "took"),
                ),
            ),
            Panel(
                "Faults of the last audit", "short", (("max(ninelives_audit_faults)", "faults"),), at_most=1
            ),
            Panel(
                "Notices that are not delivered",
                "short",
                (("sum by (channel) (ninelives_notices_waiting)", "{{channel}}"),),
            ),
            Panel(
                "The oldest of them",
                "s",
                (("max by (channel) (ninelives_notices_oldest_seconds)", "{{channel}}"),),
                at_most=600,
            ),
        ),
    ),
)
"""The rows of the dashboard, each with its panels from left to right."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(_placed({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, 24, 1))
        y, x, height = y + 1, 0, _HEIGHT
        for panel in row:
            height = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            panels.append(_placed(_drawn(panel), x, y, panel.width, height))
            x += panel.width
        y += height
    return {
        "title": "Nine Lives",
        "uid": "ninelives",
        "tags": ["ninelives"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [{"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _placed(panel: dict[str, Any], x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {**panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _drawn(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.at_most is not None:
        steps.append({"color": "red", "value": panel.at_most})
    custom = {} if panel.kind == "stat" else {"fillOpacity": 10, "showPoints": "never"}
    if panel.at_most is not None and custom:
        custom = {**custom, "thresholdsStyle": {"mode": "line"}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if custom else {},
    }
