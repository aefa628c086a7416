"""The page on governance names tests that there are; the example agents have policies that hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs/governance.md"
TITLES = (
    "Agent Goal Hijack",
    "Tool Misuse and Exploitation",
    "Identity and Privilege Abuse",
    "Agentic Supply Chain Vulnerabilities",
    "Unexpected Code Execution (RCE)",
    "Memory & Context Poisoning",
    "Insecure Inter-Agent Communication",
    "Cascading Failures",
    "Human-Agent Trust Exploitation",
    "Rogue Agents",
)
MODULES = {
    "support": [str(EXAMPLES / "support.py")],
    "compare": [str(EXAMPLES / "compare.py")],
    "demo": ["ninelives.demo.agent"],
    "tutorial": ["triage.py", "many.py", "failures.py", "chat.py"],
}


def ninelives(home: Path, *words: str, policy: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in that directory, governed by the policy of an example."""
    environment = {**os.environ, "NINELIVES_POLICY": str(EXAMPLES / f"{policy}.toml") if policy else ""}
    command = [sys.executable, "-m", "ninelives", *words]
    return subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_each_risk_and_each_promise_names_tests_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    risks = re.findall(r"^\| ASI(\d\d) (.*?) \|.*\| (.*) \|$", text, re.MULTILINE)
    assert [(int(number), title) for number, title, _ in risks] == list(enumerate(TITLES, 1))
    for number, _, shown_by in risks:
        assert f"test_owasp.py::test_asi{number}_" in shown_by
    named = re.findall(r"([\w/]+\.py)::(\w+)", text)
    assert len(named) > 20
    for file, test in named:
        path = ROOT / file if "/" in file else ROOT / "tests/governance" / file
        assert f"def {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"


def test_links_into_pages_name_headings_that_there_are() -> None:
    for page, heading in re.findall(r"\]\(([\w-]+\.md)#([\w-]+)\)", PAGE.read_text(encoding="utf-8")):
        lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
        headings = {re.sub(r"[^\w -]", "", one.lstrip("# ")).lower().replace(" ", "-") for one in lines if one.startswith("#")}  # fmt: skip # noqa: E501
        assert heading in headings, f"{page}#{heading}"


def test_each_example_has_a_policy_and_each_policy_is_of_an_example() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(MODULES)
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_policy_of_an_example_is_sound_and_its_tests_pass(name: str, tmp_path: Path) -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(# (\w+\.py)\n.*?)^```", tutorial, re.MULTILINE | re.DOTALL):
        (tmp_path / block[1]).write_text(block[0], encoding="utf-8")
    checked = ninelives(tmp_path, "policy", "check", str(EXAMPLES / f"{name}.toml"), *MODULES[name])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = ninelives(tmp_path, "policy", "test", str(EXAMPLES / f"{name}.toml"), *MODULES[name])
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert re.search(r"(\d+) of \1 tests passed", tested.stderr)


def test_under_its_policy_an_example_does_what_it_is_for(tmp_path: Path) -> None:
    agent = f"{EXAMPLES}/support.py:support"
    ran = ninelives(tmp_path, "run", agent, '"it came broken"', "A-1", "--id", "run", policy="support")
    assert "A-1: refunded 1200" in ran.stdout
    shown = ninelives(tmp_path, "show", "run", "--json")
    assert "small-refunds" in shown.stdout
    demo = ninelives(tmp_path, "demo", "--tickets", "3", "--kills", "1", "--json", policy="demo")
    assert json.loads(demo.stdout)["is_met"]
