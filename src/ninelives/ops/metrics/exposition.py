"""A reading as metrics. Every series exists from 0 on: one that is born with its first event is invisible to
`increase()`, and an alert on it never fires.

Needs prometheus-client (`ninelives[metrics]`).
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import CollectorRegistry

from ninelives import __version__
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.core.model.session import Fate, Session
from ninelives.governance import enforced
from ninelives.ops.metrics import reports
from ninelives.ops.metrics.counters import Durations, Labels, Samples, counted, from_zero
from ninelives.ops.metrics.families import FAMILIES, MetricType
from ninelives.ops.metrics.reading import Reading
from ninelives.views.records_text import step_parts

_WAITING = (State.PENDING, State.CHECKPOINTED)
_LEFT = ("runs_unrecovered", "unrecovered_oldest_seconds")


class Snapshot:
    """Collects for prometheus-client what one reading says; None: the store did not answer."""

    def __init__(self, reading: Reading | None) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        """Yield every family in its order."""
        values: dict[str, Samples] = {"ninelives_store_up": {(): float(self._reading is not None)}}
        durations: dict[str, Durations] = {}
        if self._reading is not None:
            counters = counted(self._reading.counters, _agents(self._reading))
            values |= samples_of(self._reading) | counters.samples
            values |= reports.samples_of(self._reading.documents, self._reading.gauges.at_ms)
            durations = counters.durations
        for name, family in FAMILIES.items():
            if name in durations:
                histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
                for labels, (buckets, seconds) in sorted(durations[name].items()):
                    histogram.add_metric(labels, buckets, seconds)
                yield histogram
            elif name in values:
                kind = CounterMetricFamily if family.type is MetricType.COUNTER else GaugeMetricFamily
                metric = kind(name, family.help, labels=family.labels)
                for labels, value in sorted(values[name].items()):
                    metric.add_metric(labels, value)
                yield metric


def exposed(reading: Reading | None, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an answer to a scrape, in the format that it asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot(reading))
    encode, content_type = choose_encoder(accept)
    body, headers = encode(registry), {"Content-Type": content_type}
    if gzip_accepted(accept_encoding):
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    return body, headers


def samples_of(reading: Reading) -> dict[str, Samples]:
    """Return all samples by metric and labels."""
    gauges = reading.gauges
    agents = _agents(reading)
    values: dict[str, Samples] = {
        "ninelives_info": {(__version__, reading.kind, str(reading.schema), reading.identity): 1},
        "ninelives_collect_duration_seconds": {(): reading.took_seconds},
        "ninelives_store_bytes": {(part,): size for part, size in gauges.used.items()},
        "ninelives_workers": _workers(reading.sessions),
        "ninelives_runs_without_code": _without_code(reading, agents),
        "ninelives_policies": _policies(reading, agents),
        "ninelives_budget_used_ratio": {(*labels,): used for labels, used in reading.budgets.items()},
    }
    if reading.free_bytes is not None:
        values["ninelives_store_free_bytes"] = {(): reading.free_bytes}
    values |= _of_runs(gauges, agents) | _of_people(gauges, agents) | _unrecovered(reading, agents)
    return values


def _agents(reading: Reading) -> list[str]:
    """Return all agents that the store knows."""
    known = {group.agent for group in reading.gauges.runs}
    known |= {one.labels["agent"] for one in reading.counters if "agent" in one.labels}
    return sorted(known.union(*(session.agents for session in reading.sessions)))


def _is_worker(session: Session) -> bool:
    return session.fate is Fate.LIVES and bool(session.agents)  # supervisors have no agents


def _workers(sessions: Iterable[Session]) -> Samples:
    found: defaultdict[Labels, float] = defaultdict(float)
    for session in sessions:
        found[session.machine,] += _is_worker(session)
    return dict(found) or {("",): 0.0}  # `sum(...) == 0` must have something to sum


def _without_code(reading: Reading, agents: Iterable[str]) -> Samples:
    served = {agent for one in reading.sessions if _is_worker(one) for agent in one.agents}
    found = from_zero("ninelives_runs_without_code", agents)
    for group in reading.gauges.runs:
        if group.agent not in served and group.state in _WAITING:
            found[group.agent,] += group.runs - group.paused
    return found


def _policies(reading: Reading, agents: Iterable[str]) -> Samples:
    documents = [one for one in reading.documents if one.name.startswith(enforced.PREFIX)]
    found = from_zero("ninelives_policies", agents)
    for group in enforced.grouped(documents, reading.sessions):
        for agent in group.agents:
            found[agent,] += 1
    return found


def _of_runs(gauges: Gauges, agents: Iterable[str]) -> dict[str, Samples]:
    lanes = sorted({(group.agent, group.queue) for group in gauges.runs})
    lanes += [(agent, "default") for agent in agents if (agent, "default") not in lanes]
    states = from_zero("ninelives_runs")
    runs: Samples = {(*lane, *state): 0.0 for lane in lanes for state in states}
    paused: Samples = dict.fromkeys(lanes, 0.0)
    due: Samples = dict.fromkeys(lanes, 0.0)
    for group in gauges.runs:
        lane = group.agent, group.queue
        runs[*lane, group.state.value] = group.runs
        paused[lane] += group.paused
        if group.due_ms is not None:
            due[lane] = max(due[lane], (gauges.at_ms - group.due_ms) / 1000)
    retrying = from_zero("ninelives_runs_retrying", agents)
    for one in gauges.retrying:
        # A row of before has no reason; the most common one is nearest to the truth.
        labels = one.agent, one.reason or "transient"
        retrying[labels] = retrying.get(labels, 0.0) + one.runs
    return {
        "ninelives_runs": runs,
        "ninelives_runs_paused": paused,
        "ninelives_due_oldest_seconds": due,
        "ninelives_runs_retrying": retrying,
    }


def _unrecovered(reading: Reading, agents: Iterable[str]) -> dict[str, Samples]:
    """Count runs that were left, and those of dead sessions that no worker has noticed yet."""
    gauges = reading.gauges
    runs, oldest = (from_zero(f"ninelives_{name}", agents) for name in _LEFT)
    # No worker lives that could end these: their runs are still theirs.
    dead = {one.id: one.renewed_ms for one in reading.sessions if one.fate is not Fate.LIVES}
    since = [(group.agent, group.runs, group.since_ms) for group in gauges.left]
    since += [
        (group.agent, group.runs, dead[group.session]) for group in gauges.held if group.session in dead
    ]
    for agent, count, since_ms in since:
        runs[agent,] += count
        oldest[agent,] = max(oldest[agent,], (gauges.at_ms - since_ms) / 1000, 0.0)
    return {"ninelives_runs_unrecovered": runs, "ninelives_unrecovered_oldest_seconds": oldest}


def _of_people(gauges: Gauges, agents: Iterable[str]) -> dict[str, Samples]:
    doubts: defaultdict[Labels, float] = defaultdict(float, {(agent, ""): 0.0 for agent in agents})
    items, oldest = (from_zero(f"ninelives_inbox_{name}") for name in ("items", "oldest_seconds"))
    for group in gauges.items:
        kind = group.kind.value
        items[kind,] += group.items
        oldest[kind,] = max(oldest[kind,], (gauges.at_ms - group.opened_ms) / 1000)
        if group.kind is ItemKind.DOUBT:
            doubts[group.agent, step_parts(group.step)[1]] += group.items
    return {
        "ninelives_in_doubt": dict(doubts),
        "ninelives_inbox_items": items,
        "ninelives_inbox_oldest_seconds": oldest,
    }
