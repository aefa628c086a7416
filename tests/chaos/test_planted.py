"""Five agents with one mistake each: chaos finds it, and names its class and its line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ninelives.chaos.findings.finding import Mistake
from tests.chaos.commands import chaos

PLANTED = Path(__file__).parent / "planted"
MISTAKES = {
    "outside": Mistake.OUTSIDE,
    "argument": Mistake.ARGUMENT,
    "repeated": Mistake.REPEATED,
    "value": Mistake.VALUE,
    "cleanup": Mistake.CLEANUP,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_and_named_with_its_line(name: str, tmp_path: Path) -> None:
    agent = tmp_path / f"{name}.py"
    shutil.copy(PLANTED / agent.name, agent)
    (line,) = [n for n, text in enumerate(agent.read_text().splitlines(), 1) if "# MISTAKE" in text]
    ran = chaos(
        tmp_path, f"{name}.py:support", "it is broken", "--at", "every-step", "--seconds", "1", "--json"
    )
    assert ran.code == 1, ran.err
    (finding,) = ran.report["findings"]
    assert (finding["mistake"], finding["file"], finding["line"]) == (MISTAKES[name], str(agent), line)
    assert finding["what"]
    assert finding["remedy"]
    assert [path.name for path in tmp_path.iterdir()] == [agent.name], "it worked on copies only"


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("sets", Mistake.ARGUMENT),
        ("rows", Mistake.REPEATED),
        ("program", Mistake.REPEATED),
        ("parked", Mistake.CLEANUP),
    ],
)
def test_a_mistake_in_other_clothes_is_found(name: str, mistake: Mistake, tmp_path: Path) -> None:
    agents = tmp_path / "more.py"
    shutil.copy(PLANTED / agents.name, agents)
    (line,) = [n for n, text in enumerate(agents.read_text().splitlines(), 1) if f"# MISTAKE {name}" in text]
    ran = chaos(tmp_path, f"more.py:{name}", "--at", "every-step", "--seconds", "1", "--json")
    (finding,) = ran.report["findings"]
    assert (finding["mistake"], finding["line"]) == (mistake, line), finding


def test_children_and_sleeps_are_no_mistakes_and_sleeps_are_skipped(tmp_path: Path) -> None:
    shutil.copy(PLANTED / "more.py", tmp_path)
    report = chaos(tmp_path, "more.py:parent", "--at", "every-step", "--seconds", "1", "--json").report
    assert report["findings"] == []
    assert report["kills"] >= 3
    assert [one["value"] for one in report["numbers"][2:]] == ["0.0%", "100.0%", "100.0%"]


def test_people_are_played_and_who_waits_for_others_is_refused(tmp_path: Path) -> None:
    shutil.copy(PLANTED / "more.py", tmp_path)
    words = ("more.py:people", "--at", "every-step", "--seconds", "1", "--json", "--answer", "7")
    alone = chaos(tmp_path, *words)
    assert alone.code == 1
    assert "the signal 'thanks'" in alone.err
    unfit = chaos(tmp_path, *words[:-1], "nope{")
    assert unfit.code == 1
    assert 'The answer "nope{" does not fit' in unfit.report["error"]
    report = chaos(tmp_path, *words, "--signal", "thanks=you").report
    assert report["findings"] == []
    assert [one["value"] for one in report["numbers"][2:]] == ["0.0%", "100.0%", "100.0%"]


def test_a_log_a_model_that_is_not_always_of_one_mind_and_few_lives_are_no_mistakes(tmp_path: Path) -> None:
    shutil.copy(PLANTED / "more.py", tmp_path)
    report = chaos(tmp_path, "more.py:moody", "--at", "every-step", "--seconds", "6", "--json").report
    assert report["findings"] == []
    assert [trial["why"] for trial in report["trials"] if trial["why"]] == []
    assert [one["value"] for one in report["numbers"] if one["name"] == "duplicate rate"] == ["0.0%"]
