"""The plan: every kind of fault has its turn, and a long run is sampled over all of its length."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ninelives.chaos.campaign.plan import EVERY_STEP, RANDOM, Wishes, plan, share
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault
from ninelives.chaos.trial.scenarios import Full, Once, Turns, Walk
from ninelives.chaos.trial.trial import Trial, TrialLife

KINDS = 12


def calm(steps: int, *, seconds: float = 0.3, decisions: int = 0) -> Trial:
    """A run without faults: a step after the other, the first of which only ask."""
    made = Trial("without faults", 1, 0.0)
    made.lives, made.seconds, made.state = [TrialLife(1, 0.0, seconds)], seconds, "completed"
    for name, is_decision in (("ask", True), ("act", False)):
        data = {"is_resumable": True, "is_decision": is_decision, "reads_only": False}
        made.lines.append(LedgerLine(at=0.0, life=1, what=What.DECLARED, step=name, data=data))
    made.lines.append(LedgerLine(at=0.05, life=1, what=What.READY))
    for number in range(steps):
        name = "ask" if number < decisions else "act"
        step = f"#{name}#{number}"
        made.lines += [
            LedgerLine(at=0.1, life=1, what=What.BEGIN, step=step, data={"name": name, "turn": 0}),
            LedgerLine(at=0.2, life=1, what=What.STORED, data={"records": [["result", step]]}),
        ]
    return made


def wishes(at: str = "", seconds: float = 60.0) -> Wishes:
    return Wishes(kills=20, seconds=seconds, at=at, seed=1)


def killed(at: float, moment: FaultMoment, names: list[str]) -> LedgerLine:
    return LedgerLine(
        at=at, life=1, what=What.FAULT, kind="KILL", target=moment.name, step=names[0], data={"passed": names}
    )


def test_without_at_every_kind_is_planned_and_with_it_only_what_was_asked_for() -> None:
    made = plan(calm(3), wishes(), 60.0)
    assert len(made.scenarios) == KINDS == len(made.kinds)
    assert [scenario.kind for scenario in plan(calm(3), wishes(RANDOM), 60.0).scenarios] == [
        "killed at random moments"
    ]
    assert len(plan(calm(3), wishes(EVERY_STEP), 60.0).scenarios) == 5
    assert len(plan(calm(3), wishes("agent.py:3"), 60.0).scenarios) == 1


def test_a_hang_and_a_lost_store_are_tried_at_the_middle_the_last_and_the_first_step_that_acts() -> None:
    made = plan(calm(7, decisions=2), wishes(), 60.0)
    cuts = [scenario for scenario in (*made.scenarios, *made.more) if scenario.kind == "store cut off"]
    assert [scenario.name.partition(" (")[2] for scenario in cuts] == [
        "act[4])",
        "act[6])",
        "act[2])",
    ], [scenario.name for scenario in cuts]
    assert cuts[0] in made.scenarios
    assert all(isinstance(scenario, Once) for scenario in made.more)
    assert {scenario.kind for scenario in made.more} <= set(made.kinds)


def test_where_one_run_takes_long_kills_take_turns_in_one_and_no_kind_is_forgotten() -> None:
    made = plan(calm(6, seconds=6.0), wishes(), 48.0)
    turns = made.scenarios[0]
    assert isinstance(turns, Turns)
    assert len(made.scenarios) == KINDS - 4
    assert len(made.kinds) == KINDS, "what it takes the place of is still counted"
    lines: list[LedgerLine] = []
    asked = []
    for number in range(5):
        fault = turns.fault(lines, 10.0)
        assert fault is not None
        asked.append((fault.kind, fault.moment))
        assert len(turns.kinds) == number, "only what has happened had its turn"
        line = killed(number + 1.0, fault.moment, [f"a{number}"])
        line.kind = fault.kind.name
        lines += [
            line,
            LedgerLine(at=number + 1.1, life=1, what=What.STORED, data={"records": [["result", "x"]]}),
        ]
    assert len(set(asked)) == 5
    assert (FaultKind.TERM, FaultMoment.PROGRESS) in asked


def test_a_long_walk_comes_to_the_end_of_the_run_in_the_time_that_it_has() -> None:
    points = [f"act[{number}]" for number in range(300)]
    walk = Walk(FaultKind.KILL, FaultMoment.END, 200, points=points)
    lines = [LedgerLine(at=0.0, life=1, what=What.STARTED)]
    hit: list[int] = []
    while (left := 5.0 - len(hit) * 0.1) > 0:
        fault = walk.fault(lines, left)
        assert isinstance(fault, InjectedFault)
        place = next(name for name in points if name not in fault.passed)
        hit.append(points.index(place))
        at = len(hit) * 0.1
        stored = LedgerLine(at=at, life=1, what=What.STORED, data={"records": [["result", place]]})
        lines += [killed(at, FaultMoment.END, [place]), stored]
    assert len(hit) == 50
    assert hit[0] == 0
    assert hit[-1] > 280
    assert max(later - earlier for earlier, later in pairwise(hit)) < 15
    assert walk.shortened.endswith("of 300 points")


def test_a_walk_that_has_time_leaves_nothing_out() -> None:
    points = ["a", "b", "c"]
    walk = Walk(FaultKind.KILL, FaultMoment.END, 200, points=points)
    lines = [LedgerLine(at=0.0, life=1, what=What.STARTED), killed(0.1, FaultMoment.END, ["a"])]
    fault = walk.fault(lines, 5.0)
    assert fault is not None
    assert fault.passed == ("a",)
    assert walk.shortened == ""


def test_a_full_disk_is_met_all_over_a_long_run_and_not_at_every_write() -> None:
    points = [f"result act[{number}]" for number in range(300)]
    full = Full(points)
    fault = full.fault([], 7.0)
    assert fault is not None
    assert fault.seconds == 7.0
    met = [number for number, name in enumerate(points) if name not in fault.passed]
    assert len(met) <= 40
    assert met[-1] > 280
    assert full.fault([], 7.0) is None
    assert "of 300 points" in full.shortened
    assert Full(points[:30]).shortened == ""


@pytest.mark.parametrize(("steps", "is_whole"), [(3, True), (300, False)])
def test_a_scenario_has_what_the_others_leave_and_never_less_than_an_equal_share(
    steps: int, is_whole: bool
) -> None:
    base = calm(steps)
    scenarios = plan(base, wishes(), 60.0).scenarios
    had = share(base, scenarios, 60.0)
    equal = 60.0 / len(scenarios)
    assert had >= equal
    assert (had > 2 * equal) is is_whole
