"""The long programme of governing: its parts can be run, and its page says what they came to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.governance.proof import ROOT, Part, Proof, page, parts, perform
from tests.proof.report import Result


@pytest.mark.parametrize("part", parts(0.001), ids=lambda one: one.name)
def test_what_a_part_names_is_there(part: Part) -> None:
    module, *words = part.command
    if module == "pytest":
        assert all((ROOT / one).exists() for one in words if one.endswith(".py"))
        return
    ran = subprocess.run(
        [sys.executable, "-m", module, "--help"] if words else [sys.executable, "-m", module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert all(word in ran.stdout for word in words if word.startswith("--"))


def test_the_counts_are_those_that_are_promised() -> None:
    counts = {part.name: part.command[-1] for part in parts()}
    assert counts["verdicts"] == "100000"
    assert {counts[name] for name in counts if name.startswith("budgets")} == {"10000"}
    assert len([name for name in counts if name.startswith("budgets")]) == 3


def test_a_part_that_fails_is_violated_and_shown(tmp_path: Path) -> None:
    script = tmp_path / "no_such_module"
    found = perform(Part("wrong", "it holds", ("tests.governance." + script.name,)))
    assert found.status == "violated"
    assert "no_such_module" in " ".join(found.violations)


def test_the_page_says_what_held_and_what_did_not() -> None:
    held = Result("probes", "held", "13 of 13 right", seconds=1)
    wrong = Result("verdicts", "violated", "let through: 1", violations=["refund is let through"])
    proof = Proof(at="2027-01-01", commit="abc", machine="Linux", scale=0.5, only="", results=[held, wrong])
    said = page(proof)
    assert "1 of 2 parts held" in said
    assert "**Its counts are 0.5 of those of the full length.**" in said
    assert "| held | 13 of 13 right |" in said
    assert "refund is let through" in said
