"""Findings and numbers from ledgers that are made up: what is hard to bring about on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ninelives.chaos.campaign import Campaign
from ninelives.chaos.findings import Mistake, find
from ninelives.chaos.judge import judge
from ninelives.chaos.ledger import Line, What
from ninelives.chaos.tree import Content
from ninelives.chaos.trial import Trial

STEP = "#book#0"


def line(at: float, life: int, what: What, **fields: Any) -> Line:
    return Line(at=at, life=life, what=what, **fields)


def trial(*lines: Line, **fields: Any) -> Trial:
    made = Trial("killed", 0, 0.0)
    known = {"is_resumable": True, "is_decision": False, "reads_only": False, "is_transactional": False}
    made.lines = [
        line(0.0, 1, What.DECLARED, step="book", place="agent.py:3", data=known),
        line(0.1, 1, What.READY, place=fields.pop("place", "agent.py:9")),
        *lines,
    ]
    made.state, made.result = fields.pop("state", "completed"), '"done"'
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def begin(at: float, life: int, turn: int = 0) -> Line:
    data = {"name": "book", "attempt": 1, "turn": turn}
    return line(at, life, What.BEGIN, step=STEP, target="key-1", data=data)


def stored(at: float, life: int, *records: list[str]) -> Line:
    return line(at, life, What.STORED, data={"records": list(records)})


def number(campaign: Campaign, name: str) -> str:
    (found,) = [one.value for one in judge(campaign, find(campaign)).numbers if one.name == name]
    return found


def test_code_that_goes_another_way_is_found_at_what_decides_it(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("@nl.agent\nasync def support():\n    if random.random() < 0.5:\n        await book()\n")
    calm = trial(place=f"{agent}:1")
    campaign = Campaign([calm, calm], [trial(line(1.0, 2, What.UNUSED, step=STEP), place=f"{agent}:1")], [])
    (finding,) = find(campaign)
    assert (finding.mistake, finding.line, finding.step) == (Mistake.ARGUMENT, 3, "book[0]")
    assert "random.random() in line 3" in finding.what


def test_a_recorded_step_that_is_executed_again_is_a_duplicate() -> None:
    calm = trial(begin(0.2, 1), stored(0.3, 1, ["result", STEP]))
    again = trial(begin(0.2, 1), stored(0.3, 1, ["result", STEP]), begin(0.5, 2))
    assert number(Campaign([calm, calm], [calm], []), "duplicate rate") == "0.0%"
    assert number(Campaign([calm, calm], [again], []), "duplicate rate") == "100.0%"
    turned = trial(begin(0.2, 1), stored(0.3, 1, ["result", STEP]), begin(0.5, 1, turn=1))
    assert number(Campaign([calm, calm], [turned], []), "duplicate rate") == "0.0%"


def test_what_differs_without_faults_is_not_held_against_a_run() -> None:
    first = trial(journal=[[0, "result", STEP, "f", "1"]], result='"a"')
    second = trial(journal=[[0, "result", STEP, "f", "2"]], result='"b"')
    third = trial(journal=[[0, "result", STEP, "f", "3"]], result='"c"')
    assert number(Campaign([first, second], [third], []), "consistency") == "100.0%"
    assert number(Campaign([first, first], [third], []), "consistency") == "33.3%"


def test_a_run_that_did_not_end_is_not_recovered() -> None:
    calm, lost = trial(), trial(state="escalated", why="in doubt")
    assert number(Campaign([calm, calm], [calm, lost], []), "recovery rate") == "50.0%"


def test_a_hidden_connection_of_an_action_without_a_key_is_only_perhaps_a_mistake() -> None:
    def connected(at: float, life: int) -> Line:
        return line(
            at,
            life,
            What.EFFECT,
            kind="connect",
            target="pay:443",
            step=STEP,
            place="agent.py:5",
            is_inside=True,
        )

    key = line(0.25, 1, What.KEY, step=STEP)
    calm = trial(begin(0.2, 1), connected(0.3, 1))
    twice = trial(begin(0.2, 1), connected(0.3, 1), begin(0.5, 2), connected(0.6, 2))
    keyed = trial(begin(0.2, 1), key, connected(0.3, 1), begin(0.5, 2), connected(0.6, 2))
    (finding,) = find(Campaign([calm, calm], [twice], []))
    assert (finding.mistake, finding.line, finding.is_certain) == (Mistake.REPEATED, 5, False)
    assert find(Campaign([calm, calm], [keyed], [])) == []


def test_recovery_is_counted_from_the_kill_to_what_is_new() -> None:
    killed = trial(
        begin(0.2, 1),
        line(1.0, 1, What.FAULT, kind="KILL", target="END", step="book[0]"),
        line(1.2, 2, What.READY),
        begin(1.5, 2),
    )
    (recovery,) = judge(Campaign([trial(), trial()], [killed], []), []).recoveries
    assert (round(recovery.seconds, 3), round(recovery.load_seconds, 3)) == (0.5, 0.2)


def test_an_action_that_is_done_twice_though_it_must_not_be_has_a_wrong_verify() -> None:
    def wrote(at: float, life: int) -> Line:
        return line(
            at,
            life,
            What.EFFECT,
            kind="write",
            target="/x/paid.txt",
            step=STEP,
            place="a.py:7",
            is_inside=True,
        )

    calm = trial(begin(0.2, 1), wrote(0.3, 1), changes={"paid.txt": Content("one", 1)})
    twice = trial(
        begin(0.2, 1), wrote(0.3, 1), begin(0.5, 2), wrote(0.6, 2), changes={"paid.txt": Content("two", 2)}
    )
    for one in (calm, twice):
        one.lines[0].data["is_resumable"] = False
    (finding,) = find(Campaign([calm, calm], [twice], []))
    assert (finding.mistake, finding.line) == (Mistake.VERIFY, 7)
