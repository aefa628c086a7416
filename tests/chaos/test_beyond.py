"""Files outside the tree, which all runs share; and one mistake that is not to be told as two."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.detectors import ChaosBroken, find
from ninelives.chaos.findings.finding import Mistake, the_run
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.trial.trial import Trial
from ninelives.chaos.trial.work_tree import Content
from tests.chaos.commands import Ran, chaos
from tests.chaos.test_findings import STEP, begin, line, number, trial

AGENTS = Path(__file__).parent / "planted" / "beyond.py"
LEDGER = "/var/spool/ledger"


def run(home: Path, agent: str, *words: str) -> Ran:
    """Run one of the agents in a directory, with a ledger beside it."""
    tree = home / "tree"
    tree.mkdir()
    shutil.copy(AGENTS, tree)
    words = words or ("--at", "every-step", "--seconds", "1")
    return chaos(tree, f"beyond.py:{agent}", *words, "--json", LEDGER=str(home / "ledger"))


def marked(agent: str) -> int:
    (found,) = [
        n for n, text in enumerate(AGENTS.read_text().splitlines(), 1) if f"# MISTAKE {agent}" in text
    ]
    return found


@pytest.mark.parametrize(
    ("agent", "mistake"),
    [("appends", Mistake.REPEATED), ("tasks", Mistake.ARGUMENT), ("listing", Mistake.ARGUMENT)],
)
def test_one_mistake_is_told_once_and_where_it_is(agent: str, mistake: Mistake, tmp_path: Path) -> None:
    # Two lives may come to one order by chance: the busier the machine, the fewer there are in a second.
    ran = run(tmp_path, agent, "--at", "every-step", "--seconds", "4" if agent == "tasks" else "1")
    (finding,) = ran.report["findings"]
    assert (finding["mistake"], finding["line"], finding["is_certain"]) == (mistake, marked(agent), True)
    assert ran.code == 1
    assert "random.random()" not in finding["what"], "in a step's body it is allowed"


def test_who_writes_the_whole_file_or_looks_first_has_repeated_nothing(tmp_path: Path) -> None:
    ran = run(tmp_path, "careful")
    assert ran.report["findings"] == []
    assert ran.report["kills"] >= 3
    assert len((tmp_path / "ledger").read_text().splitlines()) == 2, "though all runs write to it"


# From ledgers that are made up ----------------------------------------------------------------------


def opened(life: int, before: str, **fields: Any) -> LedgerLine:
    data = {"before": before, "is_exclusive": True} | fields.pop("data", {})
    told = {"kind": "write", "target": LEDGER, "step": STEP, "location": "a.py:7"} | fields
    return line(life + 0.2, life, What.EFFECT, is_inside=True, data=data, **told)


def left(life: int, state: str, *, is_exclusive: bool = True, step: str = STEP) -> LedgerLine:
    data = {"state": state, "is_exclusive": is_exclusive}
    return line(life + 0.3, life, What.TOUCH, kind="left", target=LEDGER, step=step, data=data)


def wrote(*states: str, **fields: Any) -> Trial:
    """Make a run whose lives found and left a file so, one after the other."""
    lines = [
        one
        for life, (before, after) in enumerate(pairwise(states), 1)
        for one in (begin(life, life), opened(life, before, **fields), left(life, after))
    ]
    return trial(*lines)


def judged(calm: list[Trial], tried: Trial) -> list[bool]:
    """Return of what was found whether it is certain."""
    found = find(Campaign(calm, [tried], []))
    assert {(one.mistake, one.line) for one in found} <= {(Mistake.REPEATED, 7)}
    return [one.is_certain for one in found]


def test_a_file_that_is_written_as_a_whole_is_held_against_the_runs_without_faults() -> None:
    alike = [wrote("", "a"), wrote("a", "a")]
    assert judged(alike, wrote("", "b", "a")) == [], "it came to the same"
    assert judged(alike, wrote("a", "b", "c")) == [True]
    assert judged(alike, wrote("a", "b", "b")) == [], "the second time it changed nothing"
    assert judged([wrote("a", "b"), wrote("b", "c")], wrote("c", "d", "e")) == [False], "nor are those alike"


def test_who_was_killed_meanwhile_left_a_file_as_the_next_one_found_it() -> None:
    appended = {"data": {"is_appended": True}}
    calm = [wrote("", "1", **appended), wrote("1", "2", **appended)]
    killed = trial(
        begin(1, 1), opened(1, "2", **appended), begin(2, 2), opened(2, "3", **appended), left(2, "4")
    )
    assert judged(calm, killed) == [True]
    early = trial(
        begin(1, 1), opened(1, "2", **appended), begin(2, 2), opened(2, "2", **appended), left(2, "3")
    )
    assert judged(calm, early) == [], "it was killed before it had written anything"


def test_what_another_step_may_have_written_meanwhile_is_only_perhaps_a_mistake() -> None:
    appended: dict[str, Any] = {"data": {"is_appended": True}}
    calm = [wrote("", "1", **appended), wrote("1", "2", **appended)]
    twice = wrote("2", "3", "4", **appended)
    for one in twice.lines:
        if one.kind == "left":
            one.data["is_exclusive"] = False
    assert judged(calm, twice) == [True], "nobody else was at this file"
    twice.lines += [opened(1, "2", step="#other#0", **appended), left(1, "3", step="#other#0")]
    assert judged(calm, twice) == [False]


def test_a_database_outside_the_tree_that_is_opened_again_is_perhaps_a_mistake() -> None:
    def connected(life: int) -> LedgerLine:
        told = {"kind": "database", "target": "/srv/shop.db", "step": STEP, "location": "a.py:7"}
        return line(life + 0.2, life, What.TOUCH, is_inside=True, data={"is_outside": True}, **told)

    calm = [trial(begin(1, 1), connected(1))] * 2
    assert judged(calm, calm[0]) == []
    again = trial(begin(1, 1), connected(1), begin(2, 2), connected(2))
    assert judged(calm, again) == [False]
    for known in ("is_transactional", "reads_only"):
        again.lines[0].data[known] = True
        assert judged(calm, again) == []
        again.lines[0].data[known] = False
    key = line(1.1, 1, What.KEY, step=STEP)
    assert judged(calm, trial(begin(1, 1), key, connected(1), begin(2, 2), connected(2))) == []


def test_a_step_that_had_other_arguments_is_not_called_non_idempotent() -> None:
    def asked(life: int, what: str) -> LedgerLine:
        data = {"asked": what, "shown": {"n": what, "m": "0"}, "turn": 0}
        return line(life + 0.1, life, What.TOUCH, kind="asked", step=STEP, location="a.py:9", data=data)

    def saved(content: str, *asked_for: str) -> Trial:
        told = {
            "kind": "write",
            "target": "/x/two.txt",
            "step": STEP,
            "location": "a.py:7",
            "is_inside": True,
        }
        lines = [
            one
            for n, what in enumerate(asked_for, 1)
            for one in (begin(n, n), asked(n, what), line(n + 0.2, n, What.EFFECT, **told))
        ]
        return trial(*lines, changes={"two.txt": Content(content)})

    calm = [saved("a", "1")] * 2
    assert judged(calm, saved("b", "1", "1")) == [True]
    (finding,) = find(Campaign(calm, [saved("b", "1", "2")], []))
    assert (finding.mistake, finding.line) == (Mistake.ARGUMENT, 9)
    assert "n: 1 → 2" in finding.what
    for second in ("1", "2"):
        diverged = saved("b", "1", second)
        diverged.lines.append(line(3.0, 3, What.DIVERGED, step=STEP, location="a.py:8", text="n: 1 → 2"))
        (finding,) = find(Campaign(calm, [diverged], []))
        assert (finding.mistake, finding.line) == (Mistake.ARGUMENT, 8)


def test_two_steps_that_one_line_leads_astray_are_one_thing_to_mend(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(AGENTS.read_text())
    (declared,) = [n for n, text in enumerate(AGENTS.read_text().splitlines(), 1) if "def branching" in text]
    unused = [line(1.0, 2, What.UNUSED, step=step) for step in (STEP, "#other#0")]
    calm = trial(location=f"{agent}:{declared}")
    (finding,) = find(Campaign([calm, calm], [trial(*unused)], []))
    assert (finding.line, finding.times) == (marked("branching"), 2)


@pytest.mark.parametrize(("method", "found"), [("GET", 0), ("HEAD", 0), ("POST", 1)])
def test_a_question_outside_a_step_changes_nothing(method: str, found: int) -> None:
    asked = line(1.0, 1, What.EFFECT, kind="request", target=f"{method} http://shop/", location="a.py:7")
    calm = trial(asked)
    assert len(find(Campaign([calm, calm], [calm], []))) == found
    again = trial(asked, line(2.0, 2, What.EFFECT, kind="request", target=asked.target, location="a.py:7"))
    assert number(Campaign([calm, calm], [again], []), "duplicate rate") == ("50.0%" if found else "0.0%")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("killed at random moments", "the run that was killed at random moments"),
        ("store's answer lost", "the run with the store's answer lost"),
        ("disk full before the store's call", "the run with the disk full before the store's call"),
        ("without faults", "the run without faults"),
    ],
)
def test_a_run_is_named_by_what_befell_it(name: str, told: str) -> None:
    assert the_run(Trial(name, 0, 0.0)) == told


def test_a_process_that_dies_of_our_own_code_is_our_mistake() -> None:
    def died(*files: str) -> Trial:
        frames = "".join(f'  File "{file}", line 3, in it\n    int("")\n' for file in files)
        output = f"hello\nTraceback (most recent call last):\n{frames}ValueError: no number\n"
        return trial(state="", why="its process died by itself, with exit code 1", output=output)

    ours, library = find.__code__.co_filename, pytest.importorskip("pathlib").__file__
    calm = trial()
    for files in ((ours,), ("/home/agent.py", ours, library)):
        with pytest.raises(ChaosBroken, match="ValueError: no number"):
            find(Campaign([calm, calm], [died(*files)], []))
    campaign = Campaign([calm, calm], [died(ours, "/home/agent.py", library)], [])
    assert find(campaign) == []
    assert number(campaign, "recovery rate") == "0.0%"
