"""A cell is one workload of one system on one store, once; a workload says what to do in it."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.places import Place
from benchmarks.systems import System

Points = list[tuple[float, float]]
_TRIES = 3


@dataclass(frozen=True)
class Metric:
    """What a value means."""

    unit: str
    is_rate: bool = False
    """Divided by the store's raw commits."""
    is_less_better: bool = False


@dataclass
class Round:
    """What one round gave: values by metric; curves by title."""

    values: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Points] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """Where a round is played."""

    system: System
    place: Place
    url: str
    folder: Path
    size: Mapping[str, Any]
    advance: Callable[[], None]
    """Tell the progress bar that a part is done."""

    def play(
        self, play: str, *, dies: bool = False, url: str | None = None, **numbers: int
    ) -> dict[str, Any]:
        """Let the program play; returns what it says. Raises Failed."""
        return json.loads(self.ended(play, dies=dies, url=url, **numbers).said or "{}")  # type: ignore[no-any-return]

    def ended(
        self, play: str, *, dies: bool = False, url: str | None = None, **numbers: int
    ) -> processes.Ended:
        """Let the program play; returns what it said and how long its process lived. Raises Failed."""
        words = self.words(play, url=url, **numbers)
        return processes.run(words, log=self.folder / "log", environment=self.environment(dies), dies=dies)

    def words(self, play: str, *, url: str | None = None, **numbers: int) -> list[str]:
        """Return the command line of a play."""
        given = [f"{name}={value}" for name, value in numbers.items()]
        return [str(self.system.python), "-m", self.system.module, play, url or self.url, *given]

    def environment(self, dies: bool = False) -> dict[str, str]:
        """Return the environment of a play: bytecode is cached; a peer sees nothing of ours."""
        hidden = {"PYTHONDONTWRITEBYTECODE"} | (
            set() if self.system.is_ours else {"PYTHONPATH", "VIRTUAL_ENV"}
        )
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        if dies:
            kept["BENCH_DIES"] = "1"
        return kept


@dataclass(frozen=True)
class Workload:
    """A named measurement."""

    code: str
    name: str
    title: str
    measure: Callable[[Cell], Round]
    metrics: Mapping[str, Metric]
    size: Mapping[str, Any]
    quick: Mapping[str, Any]
    elsewhere: Mapping[str, Any] = field(default_factory=dict)
    """What is smaller on other stores than SQLite, where it would only take longer."""
    stores: tuple[str, ...] = ("sqlite", "postgresql", "redis")
    has_peers: bool = False
    rounds: int = 5
    curve: tuple[str, str] = ("", "")
    """What its curves show: across and up."""


def usual_seconds(measure: Callable[[], float]) -> float:
    """Return the median of three, after one that only warms up: it may write bytecode for the others."""
    measure()
    return statistics.median(measure() for _ in range(_TRIES))


def statement_seconds(cell: Cell, statement: str = "pass") -> float:
    """Return how long the system's interpreter lives to execute a statement; by default, the bare one."""
    words = [str(cell.system.python), "-c", statement]
    log, environment = cell.folder / "log", cell.environment()
    return usual_seconds(lambda: processes.run(words, log=log, environment=environment).seconds)
