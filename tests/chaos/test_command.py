"""`ninelives chaos` on a good agent, and called wrongly."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ninelives.chaos.campaign import campaign as campaigns
from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.finding import Mistake
from ninelives.chaos.report.command import ending_in_order
from ninelives.chaos.trial.scenarios import Scenario
from ninelives.chaos.trial.trial import Ground, Trial
from ninelives.cli.commands import chaos as command
from ninelives.core.errors import UsageError
from tests.chaos.commands import chaos

EXAMPLE = Path(__file__).parents[2] / "examples" / "support.py"
ENDS = Path(__file__).parent / "planted" / "ends.py"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the example in it."""
    shutil.copy(EXAMPLE, tmp_path)
    return tmp_path


def test_a_good_agent_has_nothing_to_mend_and_ends_as_without_faults(home: Path) -> None:
    ran = chaos(home, "support.py:support", "broken", "A-1", "--kills", "2", "--seconds", "6", "--json")
    report = ran.report
    assert report["findings"] == []
    assert report["kills"] >= 1
    # How long it takes is the machine's affair.
    missed = [one["name"] for one in report["numbers"] if not one["is_met"]]
    assert not {"duplicate rate", "consistency", "recovery rate"}.intersection(missed), report
    assert ran.code == (1 if missed else 0)
    assert [path.name for path in home.iterdir()] == ["support.py"], "it worked on copies only"


def test_killed_at_a_line_the_run_goes_on(home: Path) -> None:
    (line,) = [n for n, text in enumerate(EXAMPLE.read_text().splitlines(), 1) if "done = await" in text]
    at = f"support.py:{line}"
    ran = chaos(home, "support.py:support", "broken", "A-1", "--at", at, "--kills", "3", "--json")
    report = ran.report
    assert report["findings"] == []
    assert report["kills"] == 3
    assert [trial["state"] for trial in report["trials"]] == ["completed"]


def test_a_line_that_is_never_executed_is_said_to_be_so(home: Path) -> None:
    (line,) = [n for n, text in enumerate(EXAMPLE.read_text().splitlines(), 1) if "we will look" in text]
    ran = chaos(home, "support.py:support", "broken", "A-1", "--at", f"support.py:{line}")
    assert ran.code == 2
    assert f"support.py:{line} was never reached" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("absent.py:support", "x", "A-1"), "absent.py"),
        (("support.py:support", "x"), "do not fit"),
        (("broken.py:support",), "/broken.py:1"),
        (("plain.py:support",), "/plain.py:4"),
        (("method.py:Bot.main",), "is a method"),
    ],
)
def test_an_agent_that_cannot_be_started_is_a_wrong_call(
    home: Path, words: tuple[str, ...], said: str
) -> None:
    (home / "broken.py").write_text("def support(:\n")
    (home / "plain.py").write_text(
        "import ninelives as nl\nclass Order: pass\n\n@nl.action\nasync def make() -> Order: return Order()\n"
    )
    (home / "method.py").write_text(
        "import ninelives as nl\nclass Bot:\n    @nl.agent\n    async def main(self) -> None: ...\n"
    )
    ran = chaos(home, *words, "--json")
    assert ran.code == 2
    assert said in ran.err
    assert said in ran.report["error"]
    assert ran.report["is_met"] is False
    assert "trial-0" not in ran.err, "it names files as the user knows them"
    assert "without faults" not in ran.err, "nothing was begun"


# Ends that are no results ---------------------------------------------------------------------------


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    """A directory with agents that end otherwise."""
    shutil.copy(ENDS, tmp_path)
    return tmp_path


def place(mark: str) -> str:
    """Name the line of a mark."""
    (line,) = [n for n, text in enumerate(ENDS.read_text().splitlines(), 1) if f"# {mark}" in text]
    return f"/ends.py:{line}"


def test_a_failure_that_is_meant_is_an_end_like_any_other(ends: Path) -> None:
    ran = chaos(ends, "ends.py:declined", "--at", "every-step", "--seconds", "1", "--json")
    report = ran.report
    assert report["error"] == ""
    assert "Permanent: the card was declined, at " in report["failure"]
    assert [trial["state"] for trial in report["calm"]] == ["failed", "failed"]
    assert {trial["state"] for trial in report["trials"]} == {"failed"}
    assert report["kills"] >= 2
    assert [one["amount"] for one in report["numbers"][2:]] == [0.0, 1.0, 1.0]
    assert report["findings"] == []


def test_what_is_undone_twice_is_found(ends: Path) -> None:
    ran = chaos(ends, "ends.py:careless", "--at", "every-step", "--seconds", "1", "--json")
    assert ran.code == 1
    (finding,) = ran.report["findings"]
    assert (finding["mistake"], finding["step"]) == (Mistake.REPEATED, "on_failure/0/append[0]")


def test_a_failure_that_is_not_meant_names_its_lines_and_can_be_said_to_be_right(ends: Path) -> None:
    words = ("ends.py:unlucky", "--at", "every-step", "--seconds", "1", "--json", "--html", "page.html")
    ran = chaos(ends, *words)
    assert ran.code == 1
    assert f"RuntimeError: nobody answers, at {ends}{place('UNLUCKY')}" in ran.report["error"]
    assert f"(raised at {ends}{place('BROKEN')})" in ran.report["error"]
    assert ran.report["trials"] == []
    assert "nobody answers" in (ends / "page.html").read_text(encoding="utf-8")
    assert {trial["state"] for trial in chaos(ends, *words, "--may-fail").report["trials"]} == {"failed"}


def test_a_run_without_an_end_is_told_to_machines_too(ends: Path) -> None:
    ran = chaos(ends, "ends.py:endless", "--limit", "1", "--json", "--html", "page.html")
    assert ran.code == 1
    assert "in time" in ran.report["error"]
    assert [trial["why"] for trial in ran.report["calm"]] == ["it did not end in time"]
    assert "in time" in (ends / "page.html").read_text(encoding="utf-8")


def test_what_was_left_out_is_said_in_the_last_line_and_fails_where_all_is_wanted(ends: Path) -> None:
    words = ("ends.py:declined", "--seconds", "0.1")
    ran = chaos(ends, *words, "--complete")
    assert ran.code == 1
    assert "kinds of fault were left out" in ran.out.splitlines()[-1]
    assert "All targets met" not in ran.out


def test_of_a_long_run_every_kind_has_its_turn(ends: Path) -> None:
    report = chaos(ends, "ends.py:long", "60", "--kills", "2", "--seconds", "25", "--json").report
    assert report["left_out"] == []
    names = " ".join(trial["name"] for trial in report["trials"])
    for kind in ("random", "hung", "disk full", "cut off", "answer lost"):
        assert kind in names
    assert report["findings"] == []


def test_a_run_that_hangs_is_given_up_after_some_times_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[float, float]] = []
    ended = Trial("killed", 2, 0.0)

    def play(seconds: float, patience_seconds: float) -> Trial:
        given.append((seconds, patience_seconds))
        return ended

    monkeypatch.setattr(campaigns, "TrialStage", lambda *_: SimpleNamespace(play=play))
    for usual, limit, patience in ((0.2, 30.0, 15.0), (8.0, 30.0, 40.0), (0.2, 3.0, 6.0)):
        calm = Trial("without faults", 1, 0.0)
        calm.seconds = usual
        ground = cast("Ground", SimpleNamespace(limit_seconds=limit))
        campaigns._play(ground, Campaign([calm, calm], [], []), Scenario("killed"), 4.0)
        assert given[-1][0] <= 4.0
        assert given[-1][1] == patience


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "support.py:9999"}, "no line 9999"),
        ({"at": "sometimes"}, "is not valid"),
        ({"at": str(EXAMPLE) + ":30"}, "--tree"),
        ({"seconds": 0.0}, "--seconds 0"),
        ({"limit_seconds": -1.0}, "--limit -1"),
        ({"tree": Path("elsewhere")}, "elsewhere"),
        ({"html": Path("elsewhere/report.html")}, "elsewhere"),
        ({"html": Path()}, "cannot be written"),
        ({"store": "memory:"}, "memory:"),
        ({"signals": ["go"]}, "NAME=JSON"),
        ({"answer": '{"a"'}, "the answer"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_started(
    home: Path, wrong: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    options: dict[str, Any] = {
        "named": [],
        "kills": 1,
        "seconds": 1.0,
        "at": "",
        "seed": 1,
        "tree": Path(),
        "limit_seconds": 1.0,
        "store": "sqlite:",
        "answer": None,
        "signals": [],
        "html": None,
        "as_json": True,
    }
    with pytest.raises(UsageError, match=said):
        command.chaos("support.py:support", ["x", "A-1"], **(options | wrong))


def test_who_is_told_to_end_ends_in_order_also_where_nobody_hears_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell's background jobs have it
    try:
        with pytest.raises(KeyboardInterrupt), ending_in_order():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
