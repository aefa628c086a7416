"""`ninelives chaos` on a good agent, and called wrongly."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ninelives.cli import chaos as command
from ninelives.core.errors import UsageError
from ninelives.demo.command import ending_in_order
from tests.chaos.commands import chaos

EXAMPLE = Path(__file__).parents[2] / "examples" / "support.py"


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
    assert ran.code == 1
    assert f"support.py:{line} was never reached" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("absent.py:support", "x", "A-1"), "absent.py"),
        (("support.py:support", "x"), "do not fit"),
        (("broken.py:support",), "/broken.py:1"),
    ],
)
def test_an_agent_that_cannot_be_started_is_a_wrong_call(
    home: Path, words: tuple[str, ...], said: str
) -> None:
    (home / "broken.py").write_text("def support(:\n")
    ran = chaos(home, *words)
    assert ran.code == 2
    assert said in ran.err
    assert "trial-0" not in ran.err, "it names files as the user knows them"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "support.py:9999"}, "no line 9999"),
        ({"at": "sometimes"}, "is no moment"),
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
