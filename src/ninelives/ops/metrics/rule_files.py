"""The alert rules as a file: for Prometheus, or as a PrometheusRule for its operator on Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ninelives.core.errors import UsageError
from ninelives.ops.metrics.rules import ALERTS, RECORDED, AlertRule, RecordingRule

KINDS = ("prometheus", "operator")
RUNBOOK = "docs/runbook.md"
_OPERATOR = """apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ninelives
spec:
"""


def written(kind: str = "prometheus", runbook: str = RUNBOOK) -> str:
    """Return the rules as YAML. `runbook` is the page that `runbook_url` leads to. Raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"--kind {kind!r}", remedy=f"Give one of {', '.join(KINDS)}")
    rules = [
        "groups:",
        "- name: ninelives-figures",
        "  rules:",
        *(line for rule in RECORDED for line in _recording(rule)),
        "- name: ninelives",
        "  rules:",
        *(line for rule in ALERTS for line in _alert(rule, runbook)),
    ]
    if kind == "operator":
        return _OPERATOR + "".join(f"  {line}\n" for line in rules)
    return "".join(f"{line}\n" for line in rules)


def _recording(rule: RecordingRule) -> Iterator[str]:
    yield f"  - record: {rule.name}"
    yield from _expression(rule.expr)


def _alert(rule: AlertRule, runbook: str) -> Iterator[str]:
    yield f"  - alert: {rule.name}"
    yield from _expression(rule.expr)
    yield f"    for: {rule.wait}"
    yield f"    labels: {{severity: {rule.severity}}}"
    yield "    annotations:"
    # A JSON text is a YAML text, too, whatever is in it.
    yield f"      summary: {json.dumps(rule.summary)}"
    yield f"      runbook_url: {json.dumps(f'{runbook}#{rule.anchor}')}"


def _expression(expr: str) -> Iterator[str]:
    yield "    expr: |-"
    yield from (f"      {line}" for line in expr.splitlines())
