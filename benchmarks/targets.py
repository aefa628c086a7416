"""The targets, and whether a report meets them. Ratios are taken within one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks import reasons
from benchmarks.figures import Report, number
from benchmarks.measures import FILES, Got, Measure, against, gain, growth, ratio, value

_MET, _MISSED = "met", "missed"


class Kind(StrEnum):
    """What becomes of a target that is missed; what is written beside it."""

    GATE = ""
    STORES = "stores"
    """A gate too; it was set with the stores, not with the speed."""
    AIM = "an aim"
    SHOWN = "shown beside the target"

    @property
    def is_gate(self) -> bool:
        """Whether a session fails that misses it."""
        return self in (Kind.GATE, Kind.STORES)


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether that is enough."""

    workload: str
    what: str
    target: str
    measured: str
    """Nothing where nothing was."""
    word: str
    """Met, missed, or why it is neither."""
    is_gate: bool
    is_comparison: bool
    """Against a peer, in the session that measured both."""
    why: str
    """Where the time goes, and what the next design would be."""

    @property
    def is_met(self) -> bool:
        """Whether it was judged, and found good."""
        return self.word == _MET

    @property
    def is_missed(self) -> bool:
        """Whether it was judged, and found wanting."""
        return self.word == _MISSED


@dataclass(frozen=True)
class _Target:
    workload: str
    what: str
    measure: Measure
    bound: float
    unit: str = ""
    is_upper: bool = False
    kind: Kind = Kind.GATE
    is_comparison: bool = False
    why: str = ""


def _most(workload: str, what: str, measure: Measure, bound: float, unit: str, why: str = "") -> _Target:
    return _Target(workload, what, measure, bound, unit, is_upper=True, why=why)


def _compared(
    workload: str, what: str, measure: Measure, bound: float, kind: Kind = Kind.GATE, why: str = ""
) -> _Target:
    return _Target(workload, what, measure, bound, "x", kind=kind, is_comparison=True, why=why)


_TARGETS = (
    _Target(
        "W1",
        "SQLite, strict, against raw commits",
        ratio("W1", "steps", "sqlite"),
        0.6,
        "x",
        why=reasons.STEP_ON_SQLITE,
    ),
    _Target(
        "W1",
        "SQLite, pipelined, against raw commits",
        ratio("W1", "pipelined decisions", "sqlite"),
        4.0,
        "x",
        kind=Kind.AIM,
        why=reasons.PIPELINED,
    ),
    _Target(
        "W1",
        "PostgreSQL against raw commits",
        ratio("W1", "steps", "postgresql"),
        0.7,
        "x",
        why=reasons.STEP_ON_POSTGRES,
    ),
    _Target(
        "W1",
        "PostgreSQL, strict, against raw commits",
        ratio("W1", "steps", "postgresql"),
        0.6,
        "x",
        kind=Kind.STORES,
    ),
    _Target("W1", "Redis against raw commits", ratio("W1", "steps", "redis"), 0.5, "x", kind=Kind.STORES),
    _Target("W2", "SQLite", value("W2", "steps"), 9_000, "steps/s"),
    _Target("W2", "PostgreSQL", value("W2", "steps", "postgresql"), 3_000, "steps/s", kind=Kind.STORES),
    _Target("W2", "Redis against raw commits", ratio("W2", "steps", "redis"), 2.0, "x", kind=Kind.STORES),
    _compared(
        "W2",
        "SQLite against the best peer on one machine",
        against("W2", "steps", "sqlite", FILES),
        10,
        why=reasons.STEPS_ON_SQLITE,
    ),
    _compared(
        "W2",
        "PostgreSQL against the best peer there",
        against("W2", "steps", "postgresql", ("postgresql",)),
        8,
        why=reasons.STEPS_ON_POSTGRES,
    ),
    _compared(
        "W3", "at once, SQLite against DBOS", against("W3", "at once", "sqlite", ("sqlite",), "DBOS"), 25
    ),
    _compared(
        "W3",
        "at once, SQLite against the best peer on SQLite",
        against("W3", "at once", "sqlite", ("sqlite",)),
        25,
        Kind.AIM,
        reasons.SHORT_RUNS,
    ),
    _most("W4", "SQLite, without the interpreter", value("W4", "without the interpreter"), 0.6, "s"),
    _most("W5", "size on SQLite, one turn", value("W5", "size"), 0.7, "MB", reasons.ONE_TURN),
    _most(
        "W5",
        "last quarter of the exchanges against the first, one turn",
        value("W5", "last quarter / first"),
        1.25,
        "x",
        reasons.ONE_TURN,
    ),
    _Target(
        "W5",
        "size on SQLite, handed on after every exchange",
        value("W5", "size, handed on"),
        0.7,
        "MB",
        is_upper=True,
        kind=Kind.SHOWN,
        why=reasons.HANDED_ON,
    ),
    _Target(
        "W5",
        "last quarter of the exchanges against the first, handed on after every exchange",
        value("W5", "last quarter / first, handed on"),
        1.25,
        "x",
        is_upper=True,
        kind=Kind.SHOWN,
        why=reasons.HANDED_ON,
    ),
    _Target(
        "W6",
        "SQLite",
        value("W6", "steps replayed"),
        100_000,
        "steps/s",
        kind=Kind.AIM,
        why=reasons.REPLAY,
    ),
    _most("W7", "SQLite, p50", value("W7", "p50"), 10, "ms"),
    _most("W7", "SQLite, p99", value("W7", "p99"), 40, "ms"),
    _most("W9", "process to finished run", value("W9", "process to finished run"), 0.35, "s", reasons.IMPORT),
    _most("W9", "import", value("W9", "import"), 0.10, "s", reasons.IMPORT),
    _most("W10", "SQLite, p99", value("W10", "p99"), 500, "ms"),
    _Target(
        "W10",
        "PostgreSQL, p99",
        value("W10", "p99", "postgresql"),
        500,
        "ms",
        is_upper=True,
        kind=Kind.STORES,
    ),
    _Target(
        "W11", "PostgreSQL, two worker processes against one", gain("postgresql"), 1.0, "x", kind=Kind.STORES
    ),
    _Target("W11", "Redis, two worker processes against one", gain("redis"), 1.0, "x", kind=Kind.STORES),
    _Target("W12", "one run, a store of 1,000,000 steps against an empty one", growth("one run"), 0.85, "x"),
    _Target(
        "W12", "100 runs, a store of 1,000,000 steps against an empty one", growth("100 runs"), 0.85, "x"
    ),
)


def judge(report: Report) -> list[Verdict]:
    """Return a verdict on each target, also on those that the report has no figures for."""
    return [_verdict(target, target.measure(report)) for target in _TARGETS]


def judge_all(reports: Sequence[Report]) -> list[Verdict]:
    """Return a verdict on each target over the sessions of a page: ours first, the peers' last."""
    ours, beside = judge(reports[0]), judge(reports[-1])
    return [late if late.is_comparison else early for early, late in zip(ours, beside, strict=True)]


def _verdict(target: _Target, got: Got | None) -> Verdict:
    sign, mark = "≤" if target.is_upper else "≥", f" ({target.kind})" if target.kind else ""
    return Verdict(
        workload=target.workload,
        what=target.what,
        target=f"{sign} {target.bound:,g} {target.unit}{mark}",
        measured=f"{number(got.value)} {target.unit} {got.note}".strip() if got else "",
        word=_word(target, got),
        is_gate=target.kind.is_gate,
        is_comparison=target.is_comparison,
        why=target.why,
    )


def _word(target: _Target, got: Got | None) -> str:
    if got is None:
        return "not measured"
    is_good = got.value <= target.bound if target.is_upper else got.value >= target.bound
    # A peer that is absent could only make a comparison worse; a smaller store tells nothing of a full one.
    if got.doubt and (is_good or not target.is_comparison):
        return f"not judged: {got.doubt}"
    return _MET if is_good else _MISSED


def fails(verdicts: Sequence[Verdict], *, is_full: bool) -> bool:
    """Tell whether a gate is missed, or, where all were to be judged, one was not."""
    gates = [verdict for verdict in verdicts if verdict.is_gate]
    return any(gate.is_missed or (is_full and not gate.is_met) for gate in gates)
