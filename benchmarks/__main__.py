"""`python -m benchmarks`: workloads by systems by stores, in one session with the stores' raw limits.

`make bench` measures Nine Lives, `make bench-peers` the others beside it, `python -m benchmarks W4 --store
sqlite --rounds 3` one workload alone; `python -m benchmarks report` writes docs/benchmarks.md from what was
measured. Exit 1 when a gate is missed; also when one was not judged by a session in which all were to be (no
workload, store or system named), or by the sessions of the page.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import figures, page, tables
from benchmarks.arena import Arena
from benchmarks.cells import Workload
from benchmarks.places import PLACES
from benchmarks.programs.play import ROOT
from benchmarks.progress import Watch
from benchmarks.systems import OURS, SYSTEMS, System
from benchmarks.targets import Verdict, fails, judge
from benchmarks.workloads import WORKLOADS

_MOST_ROUNDS_BESIDE_PEERS = 3
_OWN_STORES = ("restate", "temporal")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page."""
    asked = _parser().parse_args(arguments)
    if asked.workloads == ["report"]:
        sources = [ROOT / "build" / "bench.json", ROOT / "build" / "bench-peers.json"]
        return int(fails(page.write(ROOT / "docs", sources), is_full=True))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    given = sys.argv[1:] if arguments is None else arguments
    report = figures.begin(shlex.join(("python", "-m", "benchmarks", *given)))
    try:
        _measure(asked, report, console)
    except KeyboardInterrupt:
        report.is_complete = False
        _write(report, asked.out)
        console.print(f"stopped; nothing is left running, and what was measured is in {asked.out}")
        return 130
    _write(report, asked.out)
    for table in tables.tables(report):
        console.print(table)
    verdicts = judge(report)
    is_full = not (asked.workloads or asked.store or asked.system)
    console.print(tables.target_table([one for one in verdicts if is_full or one.measured]))
    console.print(f"written to {asked.out}")
    return int(_fails(report, verdicts, is_full=is_full, is_quick=asked.quick))


def _fails(report: figures.Report, verdicts: Sequence[Verdict], *, is_full: bool, is_quick: bool) -> bool:
    """Tell whether we failed at something, or missed a gate; tiny sizes tell nothing of gates.

    A session beside peers is the one for comparisons, the other one for all else.
    """
    if any(absence.system == OURS.name for absence in report.absences):
        return True
    due = [one for one in verdicts if one.is_comparison == report.has_peers]
    return not is_quick and (fails(verdicts, is_full=False) or fails(due, is_full=is_full))


def _write(report: figures.Report, path: Path) -> None:
    report.revision = figures.revision(ROOT)
    figures.write(report, path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure workloads on systems and stores, against the raw limits of the same stores.",
        epilog="; ".join(f"{one.code} or {one.name}: {one.title}" for one in WORKLOADS.values()),
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="codes or names; or: report")
    parser.add_argument("--store", action="append", choices=sorted(PLACES), help="only this store (repeat)")
    parser.add_argument("--system", action="append", choices=sorted(SYSTEMS), help="only this one (repeat)")
    parser.add_argument("--peers", action="store_true", help="every system, on workloads that peers can do")
    parser.add_argument("--rounds", type=_positive, help="rounds of each workload")
    parser.add_argument("--sizes", type=_sizes, help="the steps in the store, for growth: 0,1000,100000")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it work at all?")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="measure the disk that this is on")
    parser.add_argument("--out", type=Path, default=Path("build/bench-last.json"), help="the results as JSON")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds, at least 1")
    return int(text)


def _sizes(text: str) -> tuple[int, ...]:
    parts = text.replace("_", "").split(",")
    if not all(part.isdecimal() for part in parts) or sorted(map(int, parts)) != [
        int(part) for part in parts
    ]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of growing numbers, such as 0,1000,100000")
    return tuple(int(part) for part in parts)


def _chosen(asked: argparse.Namespace) -> list[Workload]:
    """Return the workloads that were asked for. Ends the program for a name that nobody has."""
    if not asked.workloads:
        return [one for one in WORKLOADS.values() if one.has_peers or not asked.peers]
    chosen = []
    for word in asked.workloads:
        found = [one for one in WORKLOADS.values() if word.lower() in (one.code.lower(), one.name)]
        if not found:
            known = ", ".join(f"{one.code} ({one.name})" for one in WORKLOADS.values())
            sys.exit(f"there is no workload {word!r}; there are {known}")
        chosen += found
    return chosen


def _systems(asked: argparse.Namespace) -> list[System]:
    if asked.system:
        return [SYSTEMS[name] for name in asked.system]
    return list(SYSTEMS.values()) if asked.peers else [OURS]


def _size(workload: Workload, asked: argparse.Namespace) -> dict[str, Any]:
    size = dict(workload.quick if asked.quick else workload.size)
    if asked.sizes and "sizes" in size:
        size["sizes"] = asked.sizes
    if asked.rounds and "rounds" in size:
        size["rounds"] = asked.rounds
    return size


def _rounds(workload: Workload, asked: argparse.Namespace) -> int:
    """Return how often a workload is played; one with rounds of its own, at each size, only once."""
    if asked.quick or "rounds" in workload.size:
        return 1
    most = _MOST_ROUNDS_BESIDE_PEERS if asked.peers else workload.rounds
    return int(asked.rounds or min(most, workload.rounds))


def _measure(asked: argparse.Namespace, report: figures.Report, console: Console) -> None:
    chosen = _chosen(asked)
    report.asked = [workload.code for workload in chosen]
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=asked.folder))
    folder.chmod(0o755)  # PostgreSQL runs as somebody else
    with Watch(console, len(chosen)) as watch:
        arena = Arena(folder, report, watch)
        try:
            systems = arena.install(_systems(asked))
            for workload in chosen:
                stores = asked.store or [*workload.stores, *_OWN_STORES]
                arena.measure(workload, systems, stores, _rounds(workload, asked), _size(workload, asked))
        finally:
            arena.close()


if __name__ == "__main__":
    sys.exit(main())
