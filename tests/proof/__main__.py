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
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Console

from tests.proof.board import Board
from tests.proof.commits import commit
from tests.proof.page import Proof, Repeat, page
from tests.proof.parts import CORES, Part, parts
from tests.proof.report import Report, Result, read, write

_MOST_SECONDS = 2400
Heard = Callable[[str], None]


def main() -> int:
    """Run the parts: those that keep the machine busy one after the other, the others side by side."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--only", default="", help="run the parts whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shorten (0.01) or lengthen everything")
    parser.add_argument(
        "--again", action="store_true", help="repeat what was violated in the last run, or what --only names"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/proof"))
    parser.add_argument("--page", type=Path, help="write this page, too (docs/proof.md)")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    last = _last(asked.folder) if asked.again else None
    wanted = _to_repeat(last, asked.only) if last else _named(parts(asked.scale), asked.only)
    began = time.monotonic()
    with Board(console, len(wanted)) as board:
        found = _perform_all(wanted, asked.folder, board)
    if last is not None:
        proof = _repeated(last, found, seconds=round(time.monotonic() - began))
    else:
        proof = Proof(
            at=_today(),
            commit=commit(),
            only=asked.only,
            machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            seconds=round(time.monotonic() - began),
            scale=asked.scale,
            parts=found,
        )
    (asked.folder / "proof.json").write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=1))
    if asked.page is not None:
        asked.page.write_text(page(proof), encoding="utf-8")
    kills = sum(section.kills for _, report in proof.parts for section in report.sections)
    console.print(f"{kills} kills, {proof.seconds} s, reports in {asked.folder}", highlight=False)
    return int(any(report.is_violated for _, report in proof.parts))


def _last(folder: Path) -> Proof:
    try:
        return msgspec.json.decode((folder / "proof.json").read_bytes(), type=Proof)
    except FileNotFoundError:
        sys.exit(f"nothing was run yet in {folder}: leave out --again")


def _named(known: list[Part], only: str) -> list[Part]:
    return [part for part in known if only in part.name]


def _violated(proof: Proof) -> list[Part]:
    return [part for part, report in proof.parts if report.is_violated]


def _to_repeat(proof: Proof, only: str) -> list[Part]:
    """Return what is to be repeated of a run: what is asked for by name, else what was violated."""
    return _named([part for part, _ in proof.parts], only) if only else _violated(proof)


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _repeated(proof: Proof, found: list[tuple[Part, Report]], *, seconds: int) -> Proof:
    """Return the last run with what was repeated in place of what it was before; it says so."""
    fresh = {part.name: report for part, report in found}
    bad = {part.name for part in _violated(proof)}
    merged = [(part, fresh.get(part.name, report)) for part, report in proof.parts]
    repeat = Repeat(
        at=_today(), commit=commit(), seconds=seconds, parts=[*fresh], violated=[*fresh.keys() & bad]
    )
    return replace(proof, parts=merged, repeats=[*proof.repeats, repeat])


def _perform_all(wanted: list[Part], folder: Path, board: Board) -> list[tuple[Part, Report]]:
    reports: dict[str, Report] = {}

    def one(part: Part) -> None:
        with board.part(part.name) as heard:
            reports[part.name] = perform(part, folder, heard)
        board.ended(part.name, reports[part.name])

    for part in wanted:
        if part.cores == CORES:
            one(part)
    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(one, (part for part in wanted if part.cores < CORES)))
    return [(part, reports[part.name]) for part in wanted]


def perform(part: Part, folder: Path, heard: Heard = lambda _: None) -> Report:
    """Run one part; one that leaves no report is violated, whatever it ended with."""
    run_of = {"commit": commit(), "at": _today()}  # as it is begun: the tree may change meanwhile
    path = folder / f"{re.sub('[^a-z]+', '-', part.name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    log = path.with_suffix(".log")
    began = time.monotonic()
    command = [sys.executable, "-u", "-m", *part.command, "--report", str(path)]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        patience = threading.Timer(_MOST_SECONDS, process.kill)
        patience.start()
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            out.flush()
            heard(line.decode(errors="replace").rstrip())
        code = process.wait()
        patience.cancel()
    if path.exists():
        told = replace(read(path), **run_of)
        write(path, told)
        return told
    said = log.read_text(errors="replace")[-1500:]
    spent = round(time.monotonic() - began)
    lost = Result(
        part.name, "violated", f"it ended with {code} after {spent} s, without a report", violations=[said]
    )
    again = f"python -m {' '.join(part.command)}"
    return Report(again=again, seconds=spent, sections=[lost], **run_of)


if __name__ == "__main__":
    sys.exit(main())
