"""`make bench`: ratios to the raw store in one run, as a table and as build/bench.json.

Every round measures the limit before and after the workload and divides by their mean, so that a
noisy machine moves both. Figures are medians over the rounds; the spread is shown. Exit 1 when a
gate is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import agents, ground, raw
from benchmarks.places import SqlitePlace

RAW_COMMITS = 400
Row = dict[str, object]


def main() -> int:
    """Run all workloads."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description="ratios to the raw store")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--quick", action="store_true", help="3 rounds, growth only to 100,000 records")
    options.add_argument(
        "--folder", type=Path, help="measure on this disk (default: the working directory's)"
    )
    asked = options.parse_args()
    rounds = 3 if asked.quick else asked.rounds
    sizes = [1_000, 10_000, 100_000] if asked.quick else [1_000, 10_000, 100_000, 1_000_000]
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=asked.folder or Path.cwd()))
    console = Console()
    if not console.is_terminal:
        console = Console(width=170)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
            rows = [*measure_rates(folder, rounds, bar), *measure_space(folder, bar)]
            growth = measure_growth(folder, sizes, rounds, bar)
    finally:
        shutil.rmtree(folder)
    rows.append(_flatness(growth, "alone"))
    rows.append(_flatness(growth, "100 together"))
    show(console, rows)
    report = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rows": rows,
        "growth": growth,
    }
    target = Path("build/bench.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(report, indent=1), encoding="utf-8")
    console.print(f"written to {target}")
    return 0 if all(row["met"] for row in rows) else 1


def measure_rates(folder: Path, rounds: int, bar: Progress) -> list[Row]:
    """Measure commits and agents against raw one-row commits."""
    return [
        _ratio_row("one record per commit, alone", 0.6, rounds, folder, bar, _alone),
        _ratio_row("100 concurrent committers", 4.0, rounds, folder, bar, _together),
        *(_ratio_row(name, target, rounds, folder, bar, work) for name, target, work in _AGENTS),
        _load_row(folder, bar),
    ]


def _on_sqlite(workload: Callable[[str], float]) -> Callable[[Path], float]:
    return lambda folder: workload(SqlitePlace(folder).fresh())


_AGENTS = (
    ("strict steps, one run", 0.45, _on_sqlite(lambda url: agents.sequential(url, 200))),
    ("100 runs of 20 steps", 2.0, _on_sqlite(lambda url: agents.at_once(url, 100, 20))),
    ("300 one-step runs at once", 0.5, _on_sqlite(lambda url: agents.at_once(url, 300, 1))),
)


def _load_row(folder: Path, bar: Progress) -> Row:
    task = bar.add_task("load 10,000 steps", total=1)
    seconds = agents.load_seconds(SqlitePlace(folder).fresh(), 10_000)
    bar.advance(task)
    return {
        "name": "load and verify a journal of 10,000 steps",
        "value": round(seconds, 3),
        "unit": "s",
        "target": "<= 0.3",
        "met": seconds <= 0.3,
        "spread": "",
        "detail": "1 KiB each",
    }


def _alone(folder: Path) -> float:
    bench = ground.Ground(folder, 1)
    try:
        return ground.alone(bench, RAW_COMMITS)
    finally:
        bench.close()


def _together(folder: Path) -> float:
    bench = ground.Ground(folder, 100)
    try:
        return ground.together(bench, bench.tails, 40)
    finally:
        bench.close()


def _ratio_row(
    name: str, target: float, rounds: int, folder: Path, bar: Progress, workload: Callable[[Path], float]
) -> Row:
    task = bar.add_task(name, total=rounds)
    rates, limits, ratios = [], [], []
    for _ in range(rounds):
        before = raw.one_row_commits(folder, RAW_COMMITS)
        rate = workload(folder)
        limit = (before + raw.one_row_commits(folder, RAW_COMMITS)) / 2
        rates.append(rate)
        limits.append(limit)
        ratios.append(rate / limit)
        bar.advance(task)
    median = statistics.median(ratios)
    return {
        "name": name,
        "value": round(median, 2),
        "unit": "x raw",
        "target": f">= {target}",
        "met": median >= target,
        "spread": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "detail": f"{statistics.median(rates):,.0f}/s, raw {statistics.median(limits):,.0f}/s",
    }


def measure_space(folder: Path, bar: Progress) -> list[Row]:
    """Measure bytes on disk for each record of 1 KiB, once the log has been moved into the database."""
    rows = []
    for name, runs, each in (("one run", 1, 10_000), ("100 runs interleaved", 100, 100)):
        task = bar.add_task(f"space, {name}", total=1)
        bench = ground.Ground(folder, runs)
        empty = bench.store.path.stat().st_size
        if runs == 1:
            tail = bench.tails[0]
            for start in range(0, each, 100):
                bench.committer.commit(tail, [ground.draft(start + n) for n in range(100)])
        else:
            ground.together(bench, bench.tails, each)
        size = (bench.close() - empty) / (runs * each)
        rows.append(
            {
                "name": f"bytes on disk per 1 KiB record, {name}",
                "value": round(size),
                "unit": "bytes",
                "target": "<= 1400",
                "met": size <= 1400,
                "spread": "",
                "detail": f"{runs * each:,} records",
            }
        )
        bar.advance(task)
    return rows


def measure_growth(folder: Path, sizes: list[int], rounds: int, bar: Progress) -> list[Row]:
    """Measure both workloads as the store grows, each against the limit of the same moment."""
    task = bar.add_task("growth", total=sizes[-1])
    bench = ground.Ground(folder, 100)
    rows: list[Row] = []
    filled = 0
    for size in sizes:
        ground.fill(bench, size - filled, lambda done: bar.advance(task, done))
        filled = size
        ratios: dict[str, list[float]] = {"alone": [], "100 together": []}
        for _ in range(rounds):
            limit = raw.one_row_commits(folder, RAW_COMMITS // 2)
            ratios["alone"].append(ground.alone(bench, RAW_COMMITS // 2) / limit)
            limit = raw.one_row_commits(folder, RAW_COMMITS // 2)
            ratios["100 together"].append(ground.together(bench, bench.tails, 10) / limit)
        rows.append(
            {"records": size} | {name: round(statistics.median(of), 3) for name, of in ratios.items()}
        )
    bench.close()
    return rows


def _flatness(growth: list[Row], name: str) -> Row:
    first, last = growth[0], growth[-1]
    ratio = float(str(last[name])) / float(str(first[name]))
    return {
        "name": f"cost at {last['records']:,} records against {first['records']:,}, {name}",
        "value": round(ratio, 2),
        "unit": "x",
        "target": ">= 0.85",
        "met": ratio >= 0.85,
        "spread": "",
        "detail": ", ".join(f"{row['records']:,}: {row[name]}" for row in growth),
    }


def show(console: Console, rows: list[Row]) -> None:
    """Print what was measured."""
    table = Table(title="Ratios to raw SQLite (WAL, synchronous=FULL) in the same run")
    for column in ("workload", "value", "target", "", "spread", "detail"):
        table.add_column(column)
    for row in rows:
        met = "[green]met[/]" if row["met"] else "[red]missed[/]"
        table.add_row(
            str(row["name"]),
            f"{row['value']} {row['unit']}",
            str(row["target"]),
            met,
            str(row["spread"]),
            str(row["detail"]),
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
