"""The targets, and whether a report meets them. Ratios are taken within one session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Report

FILES = ("sqlite", "restate", "temporal")
"""What runs on one machine without a database server."""


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether that is enough."""

    workload: str
    what: str
    target: str
    measured: str
    is_met: bool
    is_gate: bool
    is_comparison: bool
    """Against a peer, in the session that measured both."""


@dataclass(frozen=True)
class _Target:
    workload: str
    what: str
    measure: Callable[[Report], float | None]
    bound: float
    unit: str = ""
    is_upper: bool = False
    is_gate: bool = True
    is_comparison: bool = False


def _ratio(workload: str, metric: str, store: str) -> Callable[[Report], float | None]:
    def measure(report: Report) -> float | None:
        found = report.find(workload, metric, store)
        return found.ratio if found else None

    return measure


def _value(workload: str, metric: str, store: str = "sqlite") -> Callable[[Report], float | None]:
    def measure(report: Report) -> float | None:
        found = report.find(workload, metric, store)
        return found.median if found else None

    return measure


def _gain(store: str) -> Callable[[Report], float | None]:
    """Return what two worker processes give, as a multiple of what one gives."""

    def measure(report: Report) -> float | None:
        one, two = (report.find("W11", metric, store) for metric in ("1 process", "2 processes"))
        return two.median / one.median if one and two else None

    return measure


def _against(
    workload: str, metric: str, store: str, others: tuple[str, ...], peer: str | None = None
) -> Callable[[Report], float | None]:
    """Return how many times the best peer we are, or one of them by name."""

    def measure(report: Report) -> float | None:
        ours = report.find(workload, metric, store)
        figures = report.peers(workload, metric, others)
        peers = [figure.median for figure in figures if peer is None or figure.system == peer]
        return ours.median / max(peers) if ours and peers else None

    return measure


_TARGETS = (
    _Target("W1", "SQLite, strict, against raw commits", _ratio("W1", "steps", "sqlite"), 0.6, "x"),
    _Target(
        "W1",
        "SQLite, pipelined, against raw commits",
        _ratio("W1", "pipelined decisions", "sqlite"),
        4.0,
        "x",
        is_gate=False,
    ),
    _Target("W1", "PostgreSQL against raw commits", _ratio("W1", "steps", "postgresql"), 0.7, "x"),
    _Target("W1", "Redis against raw commits", _ratio("W1", "steps", "redis"), 0.5, "x"),
    _Target("W2", "SQLite", _value("W2", "steps"), 9_000, "steps/s"),
    _Target("W2", "PostgreSQL", _value("W2", "steps", "postgresql"), 3_000, "steps/s"),
    _Target("W2", "Redis against raw commits", _ratio("W2", "steps", "redis"), 2.0, "x"),
    _Target(
        "W2",
        "SQLite against the best peer on one machine",
        _against("W2", "steps", "sqlite", FILES),
        10,
        "x",
        is_comparison=True,
    ),
    _Target(
        "W2",
        "PostgreSQL against the best peer there",
        _against("W2", "steps", "postgresql", ("postgresql",)),
        8,
        "x",
        is_comparison=True,
    ),
    _Target(
        "W3",
        "at once, SQLite against DBOS",
        _against("W3", "at once", "sqlite", ("sqlite",), "DBOS"),
        25,
        "x",
        is_comparison=True,
    ),
    _Target(
        "W4",
        "SQLite, without the interpreter",
        _value("W4", "without the interpreter"),
        0.6,
        "s",
        is_upper=True,
    ),
    _Target("W5", "size on SQLite", _value("W5", "size"), 0.7, "MB", is_upper=True),
    _Target(
        "W5",
        "last quarter of the exchanges against the first",
        _value("W5", "last quarter / first"),
        1.25,
        "x",
        is_upper=True,
    ),
    _Target("W6", "SQLite", _value("W6", "steps replayed"), 100_000, "steps/s", is_gate=False),
    _Target("W7", "SQLite, p50", _value("W7", "p50"), 10, "ms", is_upper=True),
    _Target("W7", "SQLite, p99", _value("W7", "p99"), 40, "ms", is_upper=True),
    _Target(
        "W9", "process to finished run", _value("W9", "process to finished run"), 0.35, "s", is_upper=True
    ),
    _Target("W9", "import", _value("W9", "import"), 0.10, "s", is_upper=True),
    _Target("W10", "SQLite, p99", _value("W10", "p99"), 500, "ms", is_upper=True),
    _Target("W10", "PostgreSQL, p99", _value("W10", "p99", "postgresql"), 500, "ms", is_upper=True),
    _Target("W11", "PostgreSQL, two worker processes against one", _gain("postgresql"), 1.0, "x"),
    _Target("W11", "Redis, two worker processes against one", _gain("redis"), 1.0, "x"),
    _Target("W12", "one run, the fullest store against an empty one", _value("W12", "one run"), 0.85, "x"),
    _Target("W12", "100 runs, the fullest store against an empty one", _value("W12", "100 runs"), 0.85, "x"),
)


def judge(report: Report) -> list[Verdict]:
    """Return a verdict on each target that the report has figures for."""
    verdicts = []
    for target in _TARGETS:
        got = target.measure(report)
        if got is None:
            continue
        is_met = got <= target.bound if target.is_upper else got >= target.bound
        sign = "≤" if target.is_upper else "≥"
        verdicts.append(
            Verdict(
                target.workload,
                target.what,
                f"{sign} {target.bound:,g} {target.unit}" + ("" if target.is_gate else " (an aim)"),
                f"{number(got)} {target.unit}",
                is_met,
                target.is_gate,
                target.is_comparison,
            )
        )
    return verdicts


def number(value: float) -> str:
    """Write a number with three digits that count."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}"
