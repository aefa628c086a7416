"""Findings and numbers from ledgers that are made up: what is hard to bring about on purpose."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ninelives.chaos.campaign import campaign as campaigns
from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.detectors import find
from ninelives.chaos.findings.effects import effects
from ninelives.chaos.findings.finding import Mistake
from ninelives.chaos.findings.metrics import judge
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.protocol import FaultMoment
from ninelives.chaos.trial.proxy import ProxyRequest
from ninelives.chaos.trial.scenarios import Nested
from ninelives.chaos.trial.trial import Ground, Trial
from ninelives.chaos.trial.work_tree import Content

STEP = "#book#0"


def line(at: float, life: int, what: What, **fields: Any) -> LedgerLine:
    return LedgerLine(at=at, life=life, what=what, **fields)


def trial(*lines: LedgerLine, **fields: Any) -> Trial:
    made = Trial("killed", 0, 0.0)
    known = {"is_resumable": True, "is_decision": False, "reads_only": False, "is_transactional": False}
    made.lines = [
        line(0.0, 1, What.DECLARED, step="book", location="agent.py:3", data=known),
        line(0.1, 1, What.READY, location=fields.pop("location", "agent.py:9")),
        *lines,
    ]
    made.state, made.result = fields.pop("state", "completed"), '"done"'
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def begin(at: float, life: int, turn: int = 0, *, admitted_ago: float = 0.0) -> LedgerLine:
    data = {"name": "book", "attempt": 1, "turn": turn, "admitted_ago": admitted_ago}
    return line(at, life, What.BEGIN, step=STEP, target="key-1", data=data)


def stored(at: float, life: int, *records: list[str]) -> LedgerLine:
    return line(at, life, What.STORED, data={"records": list(records)})


def number(campaign: Campaign, name: str) -> str:
    (found,) = [one.value for one in judge(campaign, find(campaign)).numbers if one.name == name]
    return found


def test_code_that_goes_another_way_is_found_at_what_decides_it(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("@nl.agent\nasync def support():\n    if random.random() < 0.5:\n        await book()\n")
    calm = trial(location=f"{agent}:1")
    campaign = Campaign(
        [calm, calm], [trial(line(1.0, 2, What.UNUSED, step=STEP), location=f"{agent}:1")], []
    )
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


def test_a_body_that_was_admitted_before_its_worker_stood_still_lands_late_and_is_no_mistake() -> None:
    calm = trial(begin(0.2, 1), stored(0.3, 1, ["result", STEP]))
    lines = begin(1.0, 2), stored(1.1, 2, ["result", STEP])
    late = trial(*lines, begin(2.0, 1, admitted_ago=1.8))
    (said,) = [
        one for one in judge(Campaign([calm, calm], [late], []), []).numbers if one.name == "duplicate rate"
    ]
    assert said.is_met
    assert "landed late" in said.note
    unlooked = trial(*lines, begin(2.0, 1, admitted_ago=0.001))
    assert number(Campaign([calm, calm], [unlooked], []), "duplicate rate") == "100.0%"


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
    def connected(at: float, life: int) -> LedgerLine:
        return line(
            at,
            life,
            What.EFFECT,
            kind="connect",
            target="pay:443",
            step=STEP,
            location="agent.py:5",
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
    def wrote(at: float, life: int) -> LedgerLine:
        return line(
            at,
            life,
            What.EFFECT,
            kind="write",
            target="/x/paid.txt",
            step=STEP,
            location="a.py:7",
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


def posted(at: float, life: int, body: str) -> LedgerLine:
    asked = {"kind": "request", "target": "POST http://pay/", "step": STEP, "location": "a.py:7"}
    return line(at, life, What.EFFECT, is_inside=True, data={"digest": body, "keyed": False}, **asked)


def test_a_request_that_is_new_in_each_attempt_is_still_the_same_request() -> None:
    calm = trial(begin(0.2, 1), posted(0.3, 1, "a"))
    twice = trial(begin(0.2, 1), posted(0.3, 1, "b"), begin(0.5, 2), posted(0.6, 2, "c"))
    campaign = Campaign([calm, calm], [twice], [])
    (finding,) = find(campaign)
    assert (finding.mistake, finding.line) == (Mistake.REPEATED, 7)
    assert "a key must not be new in each attempt" in finding.what
    assert number(campaign, "duplicate rate") == "50.0%"


def test_a_request_with_something_made_from_the_key_counts_once() -> None:
    key = line(0.25, 1, What.KEY, step=STEP)
    calm = trial(begin(0.2, 1), key, posted(0.3, 1, "a"))
    twice = trial(begin(0.2, 1), key, posted(0.3, 1, "a"), begin(0.5, 2), posted(0.6, 2, "a"))
    assert find(Campaign([calm, calm], [twice], [])) == []
    anew = trial(begin(0.2, 1), key, posted(0.3, 1, "a"), begin(0.5, 2), posted(0.6, 2, "b"))
    assert len(find(Campaign([calm, calm], [anew], []))) == 1


def test_a_model_that_says_more_in_one_life_has_repeated_nothing() -> None:
    calm = trial(begin(0.2, 1), posted(0.3, 1, "a"))
    more = trial(begin(0.2, 1), posted(0.3, 1, "a"), posted(0.4, 1, "b"))
    assert find(Campaign([calm, calm], [more], [])) == []


def test_an_effect_outside_a_step_counts_once() -> None:
    def outside(at: float, life: int) -> LedgerLine:
        made = posted(at, life, "a")
        made.step, made.is_inside = "", False
        return made

    calm, twice = trial(outside(0.2, 1)), trial(outside(0.2, 1), outside(0.6, 2))
    assert number(Campaign([calm, calm], [twice], []), "duplicate rate") == "50.0%"


def test_files_with_new_names_in_each_run_are_only_counted() -> None:
    def left(*names: str) -> Trial:
        return trial(changes={name: Content("x", 1) for name in ("same", *names)})

    calm = [left("at-1"), left("at-2")]
    assert number(Campaign(calm, [left("at-3")], []), "consistency") == "100.0%"
    assert number(Campaign(calm, [left("at-3", "at-4")], []), "consistency") == "66.7%"
    assert number(Campaign([left(), left()], [left("at-3")], []), "consistency") == "66.7%"


def test_a_run_is_not_killed_for_ever_while_it_recovers_and_gets_nowhere() -> None:
    scenario = Nested(100)
    lines: list[LedgerLine] = []
    for at in range(9):
        fault = scenario.fault(lines)
        assert fault is not None
        lines.append(line(at, at, What.FAULT, kind="KILL", target=fault.moment.name, step="x"))
    assert [one.target for one in lines].index("PROGRESS") == 8
    begun = [*lines, stored(9.0, 9, ["result", STEP])]
    again = scenario.fault(begun)
    assert again is not None
    assert again.moment is FaultMoment.END


def test_before_a_difference_is_held_against_a_run_there_are_more_runs_without_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads, tails = (trial(journal=[[0, "result", STEP, "f", side]]) for side in ("heads", "tails"))
    for one in (heads, tails):
        one.result = one.journal[0][-1]
    coming = [heads, heads, tails, heads, heads]
    monkeypatch.setattr(campaigns, "TrialStage", lambda *_: SimpleNamespace(play=lambda _: coming.pop(0)))
    ground = cast("Ground", None)
    campaign = Campaign([heads, heads], [heads, tails], [])
    campaigns._add_calm_runs(ground, campaign, until=time.monotonic() + 60)
    assert len(campaign.calm) == 5, "no more than it takes"
    assert number(campaign, "consistency") == "100.0%"
    other = Campaign([heads, heads], [tails], [])
    coming[:] = [heads] * 9
    campaigns._add_calm_runs(ground, other, until=time.monotonic() + 60)
    assert len(other.calm) == 6
    assert number(other, "consistency") == "33.3%"
    late = Campaign([heads, heads], [tails], [])
    campaigns._add_calm_runs(ground, late, until=time.monotonic() - 1)
    assert len(late.calm) == 2


def test_a_request_from_a_thread_that_lost_its_context_is_the_steps_whose_key_it_sends() -> None:
    def lost(life: int, *, path: str, key: str) -> list[LedgerLine]:
        port = life
        sent.append(ProxyRequest(life + 0.3, port, "POST", f"http://pay/{path}", path, key.encode()))
        return [line(life + 0.2, life, What.TOUCH, kind="proxy", target=str(port), step=STEP, is_inside=True)]

    sent: list[ProxyRequest] = []
    other = {"name": "book", "attempt": 1, "turn": 0}
    second = [line(life, life, What.BEGIN, step="#book#1", target="key-2", data=other) for life in (1, 2)]
    lines = [begin(0.2, 1), *second, *lost(1, path="a", key="key-1"), *lost(2, path="b", key="key-2")]
    twice = trial(*lines, requests=sent)
    assert find(Campaign([trial(), trial()], [twice], [])) == []
    assert {effect.step for effect in effects(twice)} == {STEP, "#book#1"}
