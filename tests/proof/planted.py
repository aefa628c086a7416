"""`python -m tests.proof.planted`: each planted bug beside the test that turns red with it.

The bugs of the crash campaigns are hunted in `tests.crash` itself; these are all the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.proof.report import Report, Result, judged, write

HUNTS = (
    "tests/replay/test_mutants.py",
    "tests/simulation/test_mutants.py",
    "tests/unit/test_settlement.py::test_a_planted_bug_is_found",
    "tests/fleet/test_judge.py",
)


def main() -> int:
    """Hunt; returns 1 when a bug survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.planted", description=__doc__)
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as home:
        path = Path(home, "results.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={path}", *HUNTS]
        ended = subprocess.run(command, check=False, stdout=sys.stderr)
        sections = sections_of(path) if path.exists() else []
    if not sections:
        lost = f"pytest ended with {ended.returncode}, and found nothing to hunt"
        sections = [judged("planted bugs", lost, [lost])]
    for section in sections:
        print(f"{section.status:8} {section.name}: {section.numbers}")
    spent = round(time.monotonic() - began)
    told = Report(again="python -m tests.proof.planted", seconds=spent, sections=sections)
    write(asked.report, told)
    return int(told.is_violated)


def sections_of(path: Path) -> list[Result]:
    """Return one section for each bug: what was broken, and which test turned red with it."""
    cases = ET.parse(path).getroot().iter("testcase")
    return [_section(case) for case in cases]


def _section(case: ET.Element) -> Result:
    test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
    bug = case.get("name", "").partition("[")[2].rstrip("]").replace("_", " ") or case.get("name", "")
    survived = [str(one.get("message")) for tag in ("failure", "error") for one in case.iter(tag)]
    if case.find("skipped") is not None:
        return Result(bug, "not run", test)
    return judged(bug, f"{'survived' if survived else 'caught by'} {test}", survived)


if __name__ == "__main__":
    sys.exit(main())
