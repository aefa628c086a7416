"""What the benchmarks judge and tell: met, missed or neither; where figures come from; who is ahead."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from benchmarks import __main__ as command
from benchmarks import figures, page, reasons
from benchmarks.figures import Absence, Curve, Figure, Report, cleaned
from benchmarks.systems import SYSTEMS
from benchmarks.targets import Verdict, fails, judge, judge_all

BEST_PEER = ("W2", "SQLite against the best peer on one machine")


def figure(workload: str, metric: str, system: str, store: str, *values: float, raw: float = 0.0) -> Figure:
    limits = [raw] * len(values) if raw else []
    return Figure(workload, metric, "steps/s", system, store, list(values), limits)


def session(*measured: Figure, name: str = "python -m benchmarks") -> Report:
    made = figures.begin(name)
    made.figures = list(measured)
    made.versions = {one.system: "1" for one in measured if one.system in SYSTEMS}
    return made


def verdict(made: Report, workload: str, what: str) -> Verdict:
    (found,) = [one for one in judge(made) if (one.workload, one.what) == (workload, what)]
    return found


def beside_peers(*absent: str, ours: float = 9000.0) -> Report:
    """Return a session of W2 with every peer on one machine but these."""
    peers = [
        figure("W2", "steps", system.name, store, 300.0)
        for system in SYSTEMS.values()
        for store in system.stores
        if not system.is_ours and system.name not in absent
    ]
    return session(figure("W2", "steps", "Nine Lives", "sqlite", ours), *peers)


def text(*reports: Report) -> str:
    return "\n".join(page.text(reports))


def test_a_comparison_is_met_only_when_every_peer_of_it_was_there() -> None:
    whole = verdict(beside_peers(), *BEST_PEER)
    assert (whole.is_met, whole.measured) == (True, "30.0 x (DBOS)")
    lacking = verdict(beside_peers("Restate"), *BEST_PEER)
    assert (lacking.is_met, lacking.is_missed) == (False, False)
    assert lacking.word == "not judged: Restate absent"
    assert verdict(beside_peers("DBOS"), *BEST_PEER).word == "not judged: DBOS on sqlite absent"


def test_a_comparison_that_is_missed_already_needs_nobody_else() -> None:
    assert verdict(beside_peers("Restate", ours=600.0), *BEST_PEER).is_missed


def test_a_comparison_with_one_peer_needs_that_one_alone() -> None:
    made = session(
        figure("W3", "at once", "Nine Lives", "sqlite", 2500), figure("W3", "at once", "DBOS", "sqlite", 50)
    )
    assert verdict(made, "W3", "at once, SQLite against DBOS").is_met
    best = verdict(made, "W3", "at once, SQLite against the best peer on SQLite")
    assert (best.word, best.is_gate) == ("not judged: LangGraph on sqlite absent", False)


@pytest.mark.parametrize(("steps", "word"), [(1_000_000.0, "met"), (10_000.0, "not judged")])
def test_growth_is_judged_by_a_full_store_only(steps: float, word: str) -> None:
    made = session(figure("W12", "one run", "Nine Lives", "sqlite", 0.98))
    made.curves = [Curve("W12", "one run", "Nine Lives", "sqlite", "steps", "x", [(1.0, 1.0), (steps, 0.98)])]
    found = verdict(made, "W12", "one run, a store of 1,000,000 steps against an empty one")
    assert found.word.startswith(word)
    assert found.measured == f"0.98 x at {steps:,.0f} steps"


def test_what_was_not_measured_is_no_failure_unless_all_was_to_be() -> None:
    verdicts = judge(session(figure("W4", "without the interpreter", "Nine Lives", "sqlite", 0.3)))
    assert len({(one.workload, one.what) for one in verdicts}) == len(verdicts)
    assert {one.word for one in verdicts} == {"met", "not measured"}
    assert not fails(verdicts, is_full=False)
    assert fails(verdicts, is_full=True)


def test_aims_and_what_is_shown_beside_a_target_fail_nothing() -> None:
    made = session(
        figure("W5", "size, handed on", "Nine Lives", "sqlite", 1.4),
        figure("W6", "steps replayed", "Nine Lives", "sqlite", 30_000),
    )
    assert [one.workload for one in judge(made) if one.is_missed] == ["W5", "W6"]
    assert not fails(judge(made), is_full=False)
    assert "≤ 0.7 MB (shown beside the target) | 1.40 MB | **missed**" in text(made)
    assert reasons.HANDED_ON in text(made)


def test_each_session_is_asked_for_its_own_gates_alone() -> None:
    def exits(made: Report, **flags: bool) -> bool:
        return command._fails(made, judge(made), **{"is_full": False, "is_quick": False, **flags})

    lacking = beside_peers("Restate")
    assert not exits(lacking)
    assert exits(lacking, is_full=True)
    assert not exits(lacking, is_full=True, is_quick=True)
    compared = [one for one in judge(beside_peers()) if one.is_comparison]
    assert BEST_PEER in {(one.workload, one.what) for one in compared if one.is_met}
    lacking.absences.append(Absence("W1", "Nine Lives", "sqlite", "failed"))
    assert exits(lacking, is_quick=True)


def test_the_page_judges_comparisons_by_the_session_beside_peers_and_all_else_by_ours() -> None:
    ours = session(figure("W2", "steps", "Nine Lives", "sqlite", 9500))
    found = {(one.workload, one.what): one.word for one in judge_all([ours, beside_peers(ours=8000.0)])}
    assert found["W2", "SQLite"] == "met"
    assert found[BEST_PEER] == "met"


def test_the_report_command_writes_the_page_and_fails_with_its_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    figures.write(beside_peers("Restate"), tmp_path / "build" / "bench.json")
    assert command.main(["report"]) == 1
    assert "**not judged: Restate absent**" in (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")


def test_a_session_that_is_stopped_says_so_and_what_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.__main__.signal.signal", lambda *_: None)
    monkeypatch.setattr("benchmarks.__main__.Arena.install", stop)
    monkeypatch.setattr(figures, "revision", lambda folder: "abc1234")
    out = tmp_path / "out.json"
    given = ["W1", "--folder", str(tmp_path), "--out", str(out)]
    assert command.main(given) == 130
    kept = figures.read(out)
    assert (kept.is_complete, kept.revision, kept.asked) == (False, "abc1234", ["W1"])
    assert kept.command == " ".join(("python -m benchmarks", *given))


def test_a_session_is_told_as_it_was() -> None:
    stopped = session(
        figure("W1", "steps", "Nine Lives", "sqlite", 5, 6, 7),
        figure("W8", "memory", "Nine Lives", "sqlite", 30),
        name="python -m benchmarks --rounds 3",
    )
    stopped.is_complete, stopped.revision = False, "abc1234+changes"
    said = text(stopped)
    assert f"| `python -m benchmarks --rounds 3` | {stopped.at} | abc1234+changes | 3: W1; 1: W8 |" in said
    assert "**stopped: incomplete**" in said
    assert "Medians over 3 rounds" in said
    assert "One round (n = 1): no medians over rounds, no spread." in said


def test_a_figure_of_fewer_rounds_than_its_table_says_so() -> None:
    made = session(
        figure("W1", "steps", "Nine Lives", "sqlite", 5, 6, 7),
        figure("W1", "steps", "Nine Lives", "redis", 8),
        figure("W1", "steps", "Nine Lives", "postgresql", 1, 2),
    )
    said = text(made)
    assert "Medians over 1 to 3 rounds" in said
    assert "| redis | 8.00 (n = 1) |" in said
    assert "| postgresql | 1.50 (1.00 … 2.00, n = 2) |" in said


def test_files_of_before_are_sessions_that_were_not_stopped(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text('{"at": "then", "machine": {}, "command": "python -m benchmarks"}', encoding="utf-8")
    assert figures.read(old).is_complete
    assert figures.read(old).revision == ""


def test_a_revision_tells_of_changes(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
        subprocess.run(("git", "-C", str(tmp_path), *names, *words), check=True, capture_output=True)

    git("init")
    assert figures.revision(tmp_path) == ""
    git("commit", "--allow-empty", "-m", "x")
    clean = figures.revision(tmp_path)
    assert clean.isalnum()
    (tmp_path / "new").touch()
    assert figures.revision(tmp_path) == f"{clean}+changes"


def test_reasons_are_one_line_without_escape_codes() -> None:
    assert cleaned("no\x1b[0m\x1b[31m\n   code: \x1b[1;3;31mx\x1b[3") == "no code: x"
    made = session(figure("W1", "steps", "Nine Lives", "sqlite", 5))
    made.absences = [Absence("W2", "DBOS", "sqlite", "a\n\x1b[31mb | c")]
    assert "| W2 | DBOS | sqlite | a b \\| c |" in text(made)


def test_where_a_peer_is_ahead_is_told_by_what_is_better() -> None:
    made = session(
        figure("W3", "at once", "Nine Lives", "sqlite", 100),
        figure("W3", "at once", "DBOS", "sqlite", 101),
        figure("W3", "at once", "LangGraph", "sqlite", 99),
        figure("W7", "p50", "Nine Lives", "sqlite", 7),
        figure("W7", "p50", "DBOS", "sqlite", 8),
        figure("W7", "p50", "Restate", "restate", 6),
        figure("W7", "p50", "Absurd", "postgresql", 1),
    )
    _, _, ahead = text(made).partition("## Where a peer is ahead")
    rows = [line for line in ahead.partition("\n## ")[0].splitlines() if line.startswith("| W")]
    assert rows == [
        "| W3 | at once, steps/s | sqlite | DBOS 101 | 100 |",
        "| W7 | p50, steps/s | sqlite | Restate 6.00 | 7.00 |",
    ]
    assert "Where a peer is ahead" not in text(session(figure("W1", "steps", "Nine Lives", "sqlite", 5)))


def test_the_limit_beside_a_server_of_its_own_is_named_for_what_it_is() -> None:
    made = session(
        figure("W1", "steps", "Restate", "restate", 5, raw=10.0),
        figure("W1", "raw one-row commits", "the limit beside Restate", "restate", 2140),
        figure("W1", "raw one-row commits", "the limit", "sqlite", 3000),
    )
    said = text(made)
    assert "Raw commits (for the rates): SQLite on Restate's disk 2,140/s, sqlite 3,000/s." in said
    assert "filled with zeros ahead" in said


def test_a_workload_without_peers_says_why() -> None:
    measured = [figure(code, name, "Nine Lives", "sqlite", 1) for code, name in (
        ("W4", "start to all done"), ("W6", "steps replayed"), ("W7", "p50"), ("W9", "import"),
    )]  # fmt: skip
    ours = session(*measured)
    assert text(ours).count("there was no session beside peers") == 3
    assert text(ours).count("no program of a peer offers this workload") == 1
    beside = beside_peers()
    beside.asked, beside.is_complete = ["W2", "W4", "W7"], False
    beside.figures.append(figure("W7", "p50", "DBOS", "sqlite", 3))
    said = text(ours, beside)
    assert said.count("the session beside peers was stopped before") == 1
    assert said.count("not asked for in the session beside peers") == 1
    beside.is_complete = True
    assert "every peer failed or cannot do it" in text(ours, beside)
