"""The dashboard, without Grafana: its form, and what its queries ask for; and the page about metrics."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser

from ninelives.ops.metrics.families import FAMILIES, SAMPLES, MetricType
from ninelives.ops.metrics.grafana import SCHEMA_VERSION, dashboard
from ninelives.ops.metrics.rules import ALERTS, RECORDED

_NAME = re.compile(r"\bninelives[a-z0-9_:]+")


def panels() -> list[dict[str, Any]]:
    """Return the panels, as a reader of the file gets them."""
    found: list[dict[str, Any]] = json.loads(json.dumps(dashboard()))["panels"]
    return found


def expressions() -> list[str]:
    """Return all queries."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


def test_the_file_has_the_form_that_grafana_imports() -> None:
    found = dashboard()
    assert found["schemaVersion"] == SCHEMA_VERSION
    assert [one["name"] for one in found["templating"]["list"]] == ["datasource"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_no_panel_covers_another() -> None:
    places = [panel["gridPos"] for panel in panels()]
    for place in places:
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


def test_queries_use_only_metrics_that_exist() -> None:
    known = SAMPLES | {rule.name for rule in RECORDED}
    for expr in expressions():
        promql_parser.parse(expr)
        assert set(_NAME.findall(expr)) <= known, expr


def test_every_metric_of_an_alert_is_on_a_panel() -> None:
    shown = set(_NAME.findall(" ".join(expressions())))
    for rule in RECORDED:
        if rule.name in shown:
            shown |= set(_NAME.findall(rule.expr))
    by_sample = {sample: family.name for family in FAMILIES.values() for sample in family.samples}
    families = {by_sample.get(name, name) for name in shown}
    recorded = {rule.name: rule.expr for rule in RECORDED}
    for alert in ALERTS:
        for name in _NAME.findall(" ".join(recorded.get(one, one) for one in _NAME.findall(alert.expr))):
            assert name in shown or by_sample[name] in families, (alert.name, name)


def test_the_page_lists_every_metric_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(ninelives_\w+)` \| (\w+) \| ([^|]*) \| (.+) \|$", page, re.MULTILINE)
    wanted = [
        (
            family.name if family.type is MetricType.HISTOGRAM else family.samples[0],
            family.type.value,
            ", ".join(family.labels),
            family.help,
        )
        for family in FAMILIES.values()
    ]
    assert listed == wanted
