"""How a target's figure is taken from a report, and what keeps it from being judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.figures import Report
from benchmarks.systems import SYSTEMS

FILES = ("sqlite", "restate", "temporal")
"""What runs on one machine without a database server."""
FULL_STORE_STEPS = 1_000_000


class Got(NamedTuple):
    """A figure; what is said beside it; why it is not enough for a verdict, however good it looks."""

    value: float
    note: str = ""
    doubt: str = ""


Measure = Callable[[Report], Got | None]


def ratio(workload: str, metric: str, store: str) -> Measure:
    """Take the ratio to raw commits."""

    def measure(report: Report) -> Got | None:
        found = report.find(workload, metric, store)
        return Got(found.ratio) if found and found.ratio is not None else None

    return measure


def value(workload: str, metric: str, store: str = "sqlite") -> Measure:
    """Take the median itself."""

    def measure(report: Report) -> Got | None:
        found = report.find(workload, metric, store)
        return Got(found.median) if found else None

    return measure


def gain(store: str) -> Measure:
    """Take what two worker processes give, as a multiple of what one gives."""

    def measure(report: Report) -> Got | None:
        one, two = (report.find("W11", metric, store) for metric in ("1 process", "2 processes"))
        return Got(two.median / one.median) if one and two else None

    return measure


def against(
    workload: str, metric: str, store: str, others: tuple[str, ...], peer: str | None = None
) -> Measure:
    """Take how many times the best peer we are, or one of them by name. All of them must have been there."""

    def measure(report: Report) -> Got | None:
        ours = report.find(workload, metric, store)
        figures = [one for one in report.peers(workload, metric, others) if peer in (None, one.system)]
        if not ours or not figures:
            return None
        best = max(figures, key=lambda one: one.median)
        there = {(one.system, one.store) for one in figures}
        absent = [pair for pair in _compared(workload, others, peer) if pair not in there]
        doubt = f"{', '.join(_named(*pair) for pair in absent)} absent" if absent else ""
        return Got(ours.median / best.median, f"({best.system})", doubt)

    return measure


def _compared(workload: str, stores: tuple[str, ...], peer: str | None) -> list[tuple[str, str]]:
    """Return who must have been measured, where; who cannot do it at all is excused."""
    return [
        (system.name, store)
        for system in SYSTEMS.values()
        for store in system.stores
        if not system.is_ours
        and store in stores
        and workload not in system.excuses
        and peer in (None, system.name)
    ]


def _named(system: str, store: str) -> str:
    return system if system.lower() == store else f"{system} on {store}"


def growth(metric: str) -> Measure:
    """Take the share of an empty store's speed at the largest size; only a full store tells."""

    def measure(report: Report) -> Got | None:
        found = report.find("W12", metric, "sqlite")
        if found is None:
            return None
        steps = max((x for x, _ in _curve(report, metric)), default=0.0)
        doubt = "" if steps >= FULL_STORE_STEPS else f"the store had fewer than {FULL_STORE_STEPS:,} steps"
        return Got(found.median, f"at {steps:,.0f} steps", doubt)

    return measure


def _curve(report: Report, metric: str) -> list[tuple[float, float]]:
    for curve in report.curves:
        if (curve.workload, curve.title, curve.store) == ("W12", metric, "sqlite"):
            return curve.points
    return []
