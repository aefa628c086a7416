"""The alert rules: promtool accepts them, and each alert fires in a situation of its own, and only there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import promql_parser
import pytest
import yaml

from ninelives.core.errors import UsageError
from ninelives.ops.metrics import rule_files
from ninelives.ops.metrics.families import SAMPLES
from ninelives.ops.metrics.rules import ALERTS, RECORDED
from tests.metrics import programs
from tests.metrics.scenarios import SCENARIOS, Scenario

_NAME = re.compile(r"\bninelives[a-z0-9_:]+")


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    programs.needed(programs.promtool)
    (tmp_path / "rules.yaml").write_text(rule_files.written())
    done = subprocess.run(
        [programs.promtool(), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS) + len(RECORDED)} rules found" in done.stdout


def test_every_alert_has_a_scenario() -> None:
    assert {scenario.alert for scenario in SCENARIOS} - {""} == {rule.name for rule in ALERTS}


def test_each_alert_fires_in_its_scenario_and_no_other_does(tmp_path: Path) -> None:
    programs.needed(programs.promtool)
    (tmp_path / "rules.yaml").write_text(rule_files.written())
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "30s",
        "tests": [_test(scenario) for scenario in SCENARIOS],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [programs.promtool(), "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def _test(scenario: Scenario) -> dict[str, object]:
    at = f"{60 + scenario.after}m"
    return {
        "name": scenario.name,
        "interval": "30s",
        "input_series": [{"series": name, "values": found} for name, found in scenario.all_series().items()],
        "promql_expr_test": [
            # Groups are evaluated one after another: an old ratio meets the increase of a moment later.
            {"expr": "ninelives:recovery_ratio:1h < 0.999", "eval_time": "50m", "exp_samples": []}
        ],
        "alert_rule_test": [
            {"eval_time": at, "alertname": rule.name, "exp_alerts": _fired(scenario, rule.name)}
            for rule in ALERTS
        ],
    }


def _fired(scenario: Scenario, name: str) -> list[dict[str, object]]:
    if name != scenario.alert:
        return []
    (rule,) = (rule for rule in ALERTS if rule.name == name)
    summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: scenario.labels[found[1]], rule.summary)
    return [
        {
            "exp_labels": {"severity": rule.severity.value, **scenario.labels},
            "exp_annotations": {"summary": summary, "runbook_url": f"docs/runbook.md#{rule.anchor}"},
        }
    ]


def test_rules_use_only_metrics_that_exist() -> None:
    known = SAMPLES | {rule.name for rule in RECORDED}
    for rule in (*ALERTS, *RECORDED):
        promql_parser.parse(rule.expr)
        assert set(_NAME.findall(rule.expr)) <= known, rule.name


def test_the_rules_for_the_operator_are_the_same() -> None:
    plain = yaml.safe_load(rule_files.written(runbook="https://wiki/runbook"))
    operator = yaml.safe_load(rule_files.written("operator", "https://wiki/runbook"))
    assert (operator["apiVersion"], operator["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert operator["spec"] == plain
    assert all(
        rule["annotations"]["runbook_url"].startswith("https://wiki/runbook#")
        for rule in plain["groups"][1]["rules"]
    )
    with pytest.raises(UsageError, match="kind"):
        rule_files.written("nagios")
