"""`python -m tests.proof` (`make crash`): the whole fault programme, its report, and a page made of it.

Exits with 1 when a promise was violated or a planted bug survived. What could not be run is listed as such.
Each part can be run alone, by the command that its report names.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.proof.page import Proof, page
from tests.proof.parts import Part, parts
from tests.proof.report import Report, Result, read

_SPARE_SECONDS = 5400


def main() -> int:
    """Run the parts one after the other; each uses the cores that there are."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--only", default="", help="run the parts whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shorten (0.01) or lengthen everything")
    parser.add_argument("--folder", type=Path, default=Path("build/proof"))
    parser.add_argument("--page", type=Path, help="write this page, too (docs/proof.md)")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    wanted = [part for part in parts(asked.scale) if asked.only in part.name]
    began, found = time.monotonic(), list[tuple[Part, Report]]()
    columns = (TextColumn("{task.description:50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("the fault programme", total=len(wanted))
        for part in wanted:
            progress.update(bar, description=part.name)
            report = perform(part, asked.folder)
            found.append((part, report))
            for section in report.sections:
                line = f"{section.status:8} {part.name}: {section.name}: {section.numbers}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
                for violation in section.violations[:5]:
                    console.print(f"  {violation}", highlight=False, markup=False, style="red")
            progress.advance(bar)
    proof = Proof(
        at=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        seconds=round(time.monotonic() - began),
        scale=asked.scale,
        parts=found,
    )
    (asked.folder / "proof.json").write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=1))
    if asked.page is not None:
        asked.page.write_text(page(proof), encoding="utf-8")
    kills = sum(section.kills for _, report in found for section in report.sections)
    console.print(f"{kills} kills, {proof.seconds} s, reports in {asked.folder}", highlight=False)
    return int(any(report.is_violated for _, report in found))


def perform(part: Part, folder: Path) -> Report:
    """Run one part; one that leaves no report is violated, whatever it ended with."""
    path = folder / f"{re.sub('[^a-z]+', '-', part.name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    began = time.monotonic()
    with log.open("wb") as out:
        command = [sys.executable, "-m", *part.command, "--report", str(path)]
        ended = subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, timeout=_SPARE_SECONDS, check=False
        )
    if path.exists():
        return read(path)
    said = log.read_text(errors="replace")[-1500:]
    lost = Result(
        part.name, "violated", f"it ended with {ended.returncode}, without a report", violations=[said]
    )
    spent = round(time.monotonic() - began)
    return Report(again=f"python -m {' '.join(part.command)}", seconds=spent, sections=[lost])


if __name__ == "__main__":
    sys.exit(main())
