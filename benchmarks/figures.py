"""What was measured: figures over rounds, curves, and what could not be measured, with the reason."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class Figure(Struct, frozen=True):
    """One metric of a workload, for a system on a store: a value for each round, and the limits around it."""

    workload: str
    metric: str
    unit: str
    system: str
    store: str
    values: list[float]
    limits: list[float] = []
    """Raw one-row commits per second of the same store: the mean of before and after, for each round."""

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.values)

    @property
    def ratios(self) -> list[float]:
        """Each round against the limits around it; nothing for what is not a rate."""
        return [value / limit for value, limit in zip(self.values, self.limits, strict=False)]

    @property
    def ratio(self) -> float | None:
        """The middle of the ratios."""
        return statistics.median(self.ratios) if self.limits else None


class Curve(Struct, frozen=True):
    """How something changes with something else, in the last round."""

    workload: str
    title: str
    system: str
    store: str
    across: str
    up: str
    points: list[tuple[float, float]]


class Absence(Struct, frozen=True):
    """What was not measured, and why."""

    workload: str
    system: str
    store: str
    reason: str


class Report(Struct):
    """All of one session: where, when, with what, and what came out."""

    at: str
    machine: dict[str, str]
    command: str
    versions: dict[str, str] = {}
    figures: list[Figure] = []
    curves: list[Curve] = []
    absences: list[Absence] = []

    def find(self, workload: str, metric: str, store: str, system: str = "Nine Lives") -> Figure | None:
        """Return a figure."""
        for figure in self.figures:
            if (figure.workload, figure.metric, figure.store, figure.system) == (
                workload, metric, store, system,
            ):  # fmt: skip
                return figure
        return None

    def peers(self, workload: str, metric: str, stores: tuple[str, ...]) -> list[Figure]:
        """Return the figures of the others on some stores."""
        return [
            figure
            for figure in self.figures
            if (figure.workload, figure.metric) == (workload, metric)
            and figure.store in stores
            and figure.system != "Nine Lives"
        ]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so many percent do not exceed."""
    ranked = sorted(values)
    return ranked[max(math.ceil(len(ranked) * share / 100) - 1, 0)]


def begin(command: str) -> Report:
    """Return a report of this machine, still empty."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    machine = {
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    return Report(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), machine, command)


def write(report: Report, path: Path) -> None:
    """Write a report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def read(path: Path) -> Report:
    """Read a report."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
