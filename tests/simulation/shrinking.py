"""Cutting a failing plan down: Hypothesis looks for the fewest faults with which the seed is still red."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tests.simulation.plan import Plan
from tests.simulation.remains import quiet
from tests.simulation.simulation import Report, simulate

_MOST_TRIES = 300


def kind_of(report: Report) -> set[str]:
    """Return which promises a seed violates."""
    return {violation.partition(":")[0] for violation in report.violations}


def shrink(report: Report) -> Plan:
    """Return a small part of a red seed's plan with which it violates one of the same promises."""
    wanted = kind_of(report)

    def is_red(kept: list[bool]) -> bool:
        return bool(kind_of(simulate(report.seed, _part(report.plan, kept))) & wanted)

    every = st.lists(st.booleans(), min_size=len(report.plan), max_size=len(report.plan))
    lean = settings(
        max_examples=_MOST_TRIES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    with quiet():
        try:
            return _part(report.plan, find(every, is_red, settings=lean))
        except NoSuchExample:
            return report.plan


def _part(plan: Plan, kept: list[bool]) -> Plan:
    return tuple(fault for fault, is_kept in zip(plan, kept, strict=True) if is_kept)
