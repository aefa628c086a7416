"""`python -m tests.proof.planted`: each planted bug beside what turns red with it, a test or a campaign."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.crash.hunts import hunt_all
from tests.edits.mutants import MUTANTS as EDITED
from tests.proof.report import Report, Result, judged, tell, write
from tests.replay.mutants import MUTANTS as REPLAYED
from tests.simulation.mutants import MUTANTS as SIMULATED

HUNTS = (
    "tests/replay/test_mutants.py",
    "tests/edits/test_mutants.py",
    "tests/simulation/test_mutants.py",
    "tests/unit/test_settlement.py::test_a_planted_bug_is_found",
    "tests/fleet/test_judge.py",
)
_KNOWN: dict[str, Mapping[str, object]] = {
    "tests.replay.test_mutants": REPLAYED,
    "tests.edits.test_mutants": EDITED,
    "tests.simulation.test_mutants": SIMULATED,
}


def main() -> int:
    """Hunt; returns 1 when a bug survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.planted", description=__doc__)
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as home:
        path = Path(home, "results.xml")
        flags = ["-q", "-p", "no:cacheprovider", f"--junitxml={path}"]
        command = [sys.executable, "-m", "pytest", *flags, *HUNTS]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as tests:  # its words are in the file
            sections = [tell(section) for section in hunt_all()]
        found = [tell(section) for section in sections_of(path)] if path.exists() else []
    if not found:
        lost = f"pytest ended with {tests.returncode}, and found nothing to hunt"
        found = [tell(judged("planted bugs", lost, [lost]))]
    spent = round(time.monotonic() - began)
    told = Report(again="python -m tests.proof.planted", seconds=spent, sections=sections + found)
    write(asked.report, told)
    return int(told.is_violated)


def sections_of(path: Path) -> list[Result]:
    """Return one section for each bug: what was broken, and which test turned red with it."""
    cases = ET.parse(path).getroot().iter("testcase")
    return [_section(case) for case in cases]


def _section(case: ET.Element) -> Result:
    module, name = case.get("classname", ""), case.get("name", "")
    test = f"{module.replace('.', '/')}.py::{name.partition('[')[0]}"
    bug = name.partition("[")[2].rstrip("]")
    survived = [str(one.get("message")) for tag in ("failure", "error") for one in case.iter(tag)]
    if case.find("skipped") is not None:
        return Result(bug or name, "not run", test)
    meaning = (_KNOWN[module][bug].__doc__ or "").strip() + " " if bug in _KNOWN.get(module, ()) else ""
    said = bug.replace("_", " ") or name
    return judged(said, f"{meaning}{'Not caught' if survived else 'Caught'} by {test}", survived)


if __name__ == "__main__":
    sys.exit(main())
