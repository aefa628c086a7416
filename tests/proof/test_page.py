"""The page says what the reports say: what held, what did not, what was not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.proof import __main__ as programme
from tests.proof.__main__ import _last, _repeated, _to_repeat, _violated, perform
from tests.proof.commits import commit
from tests.proof.page import Proof, page
from tests.proof.parts import Part, parts
from tests.proof.planted import sections_of
from tests.proof.report import Report, Result, judged, read

PART = Part("kills, sqlite", ("tests.crash",), "SIGKILL", ("I1",))


def _proof(*sections: Result) -> Proof:
    report = Report(again="python -m tests.crash --seed 1", store="sqlite", seconds=3, sections=[*sections])
    return Proof(at="2027-01-01", machine="Linux", seconds=60, scale=1.0, parts=[(PART, report)])


def test_the_page_tells_of_all_sections() -> None:
    held = judged("random kills", "12 kills | 0 lost", [], kills=12, windows={"commit": 9, "claim": 3})
    wrong = judged("power cuts", "1 lost", ["run-3 is gone"])
    left_out = Result("failed syncs", "not run", "needs strace")
    told = page(_proof(held, wrong, left_out))
    assert "12 kills in 1 minutes, 1 sections with violations" in told
    assert "| random kills | held | 12 kills \\| 0 lost |" in told
    assert "| power cuts | violated | 1 lost |" in told
    assert "- kills, sqlite: failed syncs: needs strace" in told
    assert "commit       9 " in told
    assert "python -m tests.crash --seed 1" in told


def test_every_part_can_be_called_and_knows_where_to_report() -> None:
    for module in {part.command[0] for part in parts()}:
        told = subprocess.run(
            [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False, timeout=60
        )
        assert told.returncode == 0, told.stderr
        assert "--report" in told.stdout
    names = [part.name for part in parts()]
    assert len(names) == len(set(names))


def test_a_part_without_a_report_is_violated(tmp_path: Path) -> None:
    silent = Part("silent", ("tests.proof.report",), "nothing", ())
    report = perform(silent, tmp_path)
    assert report.is_violated
    assert "without a report" in report.sections[0].numbers


def test_a_part_is_performed_and_its_report_read(tmp_path: Path) -> None:
    replay = Part("random programs", ("tests.replay", "--seconds", "0.01", "--seed", "7"), "kills", ())
    report = perform(replay, tmp_path)
    assert report == read(tmp_path / "random-programs.json")
    assert [section.status for section in report.sections] == ["held"]
    assert report.sections[0].kills > 0
    assert report.commit == commit()
    assert report.at


def test_a_surviving_bug_is_a_violation(tmp_path: Path) -> None:
    path = tmp_path / "results.xml"
    path.write_text(
        '<testsuites><testsuite><testcase classname="tests.x.test_y" name="test_z[ack_first]"/>'
        '<testcase classname="tests.x.test_y" name="test_z[no_epoch]"><failure message="not caught"/>'
        "</testcase></testsuite></testsuites>"
    )
    caught, survived = sections_of(path)
    assert caught == judged("ack first", "Caught by tests/x/test_y.py::test_z", [])
    assert survived.status == "violated"
    assert survived.name == "no epoch"


def test_what_was_violated_is_repeated_alone_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Part("good", ("tests.proof.absent",), "none", ("I1",))
    bad = Part("bad", ("tests.proof.absent",), "none", ("I1",))
    held = Report(again="", seconds=1, sections=[judged("a", "1 kill", [], kills=1)])
    lost = Report(again="", seconds=1, sections=[judged("b", "1 lost", ["gone"])])
    proof = Proof(at="2027-01-01", machine="L", seconds=60, scale=1.0, parts=[(good, held), (bad, lost)])
    (tmp_path / "proof.json").write_bytes(msgspec.json.encode(proof))
    last = _last(tmp_path)
    assert _violated(last) == [bad]
    mended = Report(again="", seconds=1, sections=[judged("b", "0 lost", [])])
    monkeypatch.setattr(programme, "commit", lambda: "cafe+changes")
    twice = _repeated(_repeated(last, [(bad, mended)], seconds=7), [(bad, mended)], seconds=300)
    told = page(twice)
    assert "1 kills in 1 minutes, 0 sections with violations" in told
    today = twice.repeats[0].at
    told_of = f"Repeated on {today} at commit cafe+changes in"
    assert f"{told_of} 7 s, and shown as of then: bad (violated at first)." in told
    assert f"{told_of} 5 minutes, and shown as of then: bad." in told
    assert [part.name for part in _to_repeat(last, "goo")] == ["good"]
    assert _to_repeat(last, "") == [bad]


def test_the_page_names_the_commit_of_the_run_and_of_parts_of_another() -> None:
    same = Report(again="", seconds=1, sections=[judged("a", "1", [])], commit="beef", at="2027-01-01")
    later = Report(again="", seconds=1, sections=[judged("b", "1", [])], commit="cafe", at="2027-01-02")
    proof = Proof(
        at="2027-01-01",
        machine="L",
        seconds=60,
        scale=1.0,
        parts=[(PART, same), (PART, later)],
        commit="beef",
    )
    told = page(proof)
    assert "Last run 2027-01-01 of commit beef on L" in told
    assert told.count("at commit") == 1
    assert "Run on 2027-01-02 at commit cafe." in told
    assert "part of the programme only" not in told
    some = page(replace(proof, only="kills"))
    assert some.splitlines()[2].startswith("**This is a part of the programme only: 2 of ")


def test_the_report_of_an_older_run_can_be_read(tmp_path: Path) -> None:
    older = {
        "at": "2026-01-01", "machine": "L", "seconds": 60, "scale": 1.0, "repeated": ["bad"],
        "parts": [
            [
                {"name": "bad", "command": ["x"], "faults": "none", "invariants": ["I1"], "cores": 2},
                {"again": "", "store": "", "seconds": 1, "sections": []},
            ]
        ],
    }  # fmt: skip
    (tmp_path / "proof.json").write_bytes(msgspec.json.encode(older))
    told = page(_last(tmp_path))
    assert "of commit unknown" in told
    assert "repeated after they were mended, and shown as of then: bad." in told


def test_a_commit_is_named_with_what_was_changed_since(tmp_path: Path) -> None:
    assert commit(tmp_path / "absent") == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    clean = commit(tmp_path)
    assert len(clean) == 12
    (tmp_path / "new").touch()
    assert commit(tmp_path) == f"{clean}+changes"
