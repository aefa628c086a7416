"""What was measured: figures over rounds, curves, and what could not be measured, with the reason."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[@-~]?)?")
_REASON_LENGTH = 200


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
    revision: str = ""
    """Of the repository, when the session ended."""
    asked: list[str] = []
    """The workloads that were asked for; nothing in files that do not tell."""
    is_complete: bool = True
    """Whether it was not stopped."""

    @property
    def has_peers(self) -> bool:
        """Whether others than Nine Lives took part."""
        return any(system != "Nine Lives" for system in self.versions)

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


def number(value: float) -> str:
    """Write a number with three digits that count."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}"


def cleaned(reason: str) -> str:
    """Return a reason as one line without escape codes, not too long."""
    plain = "".join(sign if sign.isprintable() else " " for sign in _ESCAPES.sub("", reason))
    return " ".join(plain.split())[:_REASON_LENGTH]


def revision(folder: Path) -> str:
    """Return the revision of a folder, and whether it was changed since; nothing where git cannot tell."""
    said = []
    for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain")):
        try:
            ended = subprocess.run(
                ("git", "-C", str(folder), *words), capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        said.append(ended.stdout.strip())
    return said[0] + ("+changes" if said[1] else "")


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
