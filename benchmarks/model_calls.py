"""What hedging and breakers do for model calls: `python -m benchmarks.model_calls`; see docs/models.md.

The clients are the real packages `openai` and `anthropic`, in an environment of their own under build/; they
ask a server on this machine with heavy-tailed latencies, in a process of its own, which counts requests.
What is compared takes turns in one process. Writes its plots to docs/benchmarks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.plots import Bar, bars
from benchmarks.programs.play import ROOT

CLIENTS = ROOT / "build" / "clients"
PACKAGES = ("openai==3.51.0", "anthropic==2.10.0")
PLOTS = ROOT / "docs" / "benchmarks"


def install() -> Path:
    """Make the environment of the clients unless it is there; return its interpreter."""
    python, ready = CLIENTS / "bin" / "python", CLIENTS / "ready"
    wanted = "\n".join(PACKAGES)
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        print(f"installing {' and '.join(PACKAGES)} in {CLIENTS.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(CLIENTS)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES, "-e", str(ROOT)], check=True)
        ready.write_text(wanted, encoding="utf-8")
    return python


def quantiles(took: list[float]) -> dict[str, float]:
    """Return p50, p95, p99 and p99.9, in milliseconds."""
    found = sorted(took)
    return {
        name: found[min(len(found) - 1, int(len(found) * share))] * 1000
        for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999))
    }


def table(rows: dict[str, tuple[list[float], float]]) -> str:
    """Return latencies and further requests, a line for each way of asking."""
    lines = ["| | p50 ms | p95 ms | p99 ms | p99.9 ms | requests per call |", "| --- " * 6 + "|"]
    for name, (took, requests) in rows.items():
        found = quantiles(took)
        cells = " | ".join(f"{found[one]:,.0f}" for one in found)
        lines.append(f"| {name} | {cells} | {requests / len(took):.3f} |")
    return "\n".join(lines)


def draw(name: str, title: str, rows: dict[str, tuple[list[float], float]]) -> None:
    """Write a plot of the 99th and 99.9th percentiles."""
    drawn = []
    for way, (took, _) in rows.items():
        found = quantiles(took)
        for share in ("p99", "p99.9"):
            value = found[share]
            drawn.append(Bar(f"{way}, {share}", value, value, value, way != next(iter(rows))))
    PLOTS.mkdir(parents=True, exist_ok=True)
    (PLOTS / f"{name}.svg").write_text(bars(title, "ms", drawn), encoding="utf-8")


def main() -> None:
    """Measure in the clients' environment, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model_calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="calls of each way")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        from benchmarks.programs import model_clients

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(model_clients.measure(Path(folder), given.calls, given.rounds))
        return
    python = install()
    words = [str(python), "-m", "benchmarks.model_calls", "--inside"]
    words += ["--calls", str(given.calls), "--rounds", str(given.rounds)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    raise SystemExit(done.returncode)


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


if __name__ == "__main__":
    main()
