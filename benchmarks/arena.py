"""The arena: plays workloads, systems and stores against each other, round by round.

Within a round every system has its turn on every store, with the store's raw limit measured before and
after, so that a noisy minute hits all of them. What somebody cannot do is written down with its reason, and
the session goes on; what Nine Lives fails at is a missed gate.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell, Round, Workload
from benchmarks.figures import Absence, Curve, Figure, Report, cleaned
from benchmarks.places import PLACES, Place
from benchmarks.processes import Failed
from benchmarks.progress import Watch
from benchmarks.systems import System

_RAW_COMMITS = 400


@dataclass
class _Tally:
    """All rounds of one cell so far."""

    rounds: list[Round] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    """One for each round, or none at all."""
    failures: list[str] = field(default_factory=list)


class Arena:
    """A folder on the disk that is measured, with the servers that were needed so far."""

    def __init__(self, folder: Path, report: Report, watch: Watch) -> None:
        self._folder, self._report, self._watch = folder, report, watch
        self._places: dict[str, Place] = {}
        self._end = ExitStack()
        self._end.callback(shutil.rmtree, folder, ignore_errors=True)

    def close(self) -> None:
        """Stop the servers and remove the folder, whatever goes wrong meanwhile."""
        self._end.close()

    def install(self, systems: Sequence[System]) -> list[System]:
        """Bring the systems here; returns those that came, and notes why others did not."""
        came = []
        for system in systems:
            self._watch.say(f"installing {system.name}")
            try:
                system.install()
            except (subprocess.CalledProcessError, OSError) as error:
                said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
                for store in system.stores:
                    self._note("all", system, store, said[-1] if said else type(error).__name__)
            else:
                came.append(system)
                self._report.versions[system.name] = ", ".join((*system.packages, *system.node_packages))
        return came

    def measure(
        self,
        workload: Workload,
        systems: Sequence[System],
        stores: Sequence[str],
        rounds: int,
        size: Mapping[str, Any],
    ) -> None:
        """Play all rounds of a workload on these stores, and put what came out into the report.

        A round that fails is noted, and the good ones are kept; also when the session is stopped meanwhile.
        """
        tallies: dict[tuple[System, str], _Tally] = {
            (system, store): _Tally() for system, store in self._pairs(workload, systems, stores)
        }
        self._watch.begin(f"{workload.code}: {workload.title}", rounds * len(tallies))
        try:
            for _ in range(rounds):
                for (system, store), tally in tallies.items():
                    self._watch.say(f"{workload.code} {system.name} on {store}")
                    try:
                        self._play(workload, system, store, size, tally)
                    except Exception as error:
                        said = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                        tally.failures.append(said)
        finally:
            for (system, store), tally in tallies.items():
                self._write(workload, system, store, tally)
        self._watch.end()

    def _note(self, workload: str, system: System, store: str, reason: str) -> None:
        self._report.absences.append(Absence(workload, system.name, store, cleaned(reason)))

    def _pairs(
        self, workload: Workload, systems: Sequence[System], stores: Sequence[str]
    ) -> Iterator[tuple[System, str]]:
        for system in systems:
            if not (system.is_ours or workload.has_peers):
                continue
            for store in system.stores:
                if store not in stores:
                    continue
                if workload.code in system.excuses:
                    self._note(workload.code, system, store, system.excuses[workload.code])
                else:
                    yield system, store

    def _play(
        self,
        workload: Workload,
        system: System,
        store: str,
        size: Mapping[str, Any],
        tally: _Tally,
    ) -> None:
        place = self._place(store)
        url = place.fresh()
        is_rate = any(metric.is_rate for metric in workload.metrics.values())
        try:
            before = place.limit(_RAW_COMMITS) if is_rate else 0.0
            sized = size if store == "sqlite" else {**size, **_smaller(size, workload.elsewhere)}
            cell = Cell(system, place, url, self._folder, sized, self._watch.tick)
            played = workload.measure(cell)
            if is_rate:
                tally.limits.append((before + place.limit(_RAW_COMMITS)) / 2)
            tally.rounds.append(played)
        finally:
            place.drop(url)
            (self._folder / "log").unlink(missing_ok=True)
            self._watch.cell()

    def _place(self, store: str) -> Place:
        if store not in self._places:
            home = self._folder / store
            home.mkdir()
            home.chmod(0o755)
            self._places[store] = place = PLACES[store](home)
            self._end.callback(place.close)
        return self._places[store]

    def _write(self, workload: Workload, system: System, store: str, tally: _Tally) -> None:
        if tally.failures:
            tries = len(tally.rounds) + len(tally.failures)
            share = f"{len(tally.failures)} of {tries} rounds " if tally.rounds else ""
            self._note(workload.code, system, store, f"{share}failed: {tally.failures[0]}")
        for name, metric in workload.metrics.items():
            told = [at for at, one in enumerate(tally.rounds) if name in one.values]
            if told:
                self._report.figures.append(
                    Figure(
                        workload=workload.code,
                        metric=name,
                        unit=metric.unit,
                        system=system.name,
                        store=store,
                        values=[round(tally.rounds[at].values[name], 6) for at in told],
                        limits=[round(tally.limits[at], 1) for at in told] if metric.is_rate else [],
                    )
                )
        if tally.limits:
            figure = Figure(
                workload=workload.code,
                metric="raw one-row commits",
                unit="commits/s",
                system="the limit" if system.is_ours else f"the limit beside {system.name}",
                store=store,
                values=[round(limit, 1) for limit in tally.limits],
            )
            self._report.figures.append(figure)
        across, up = workload.curve
        for title, points in (tally.rounds[-1].curves if tally.rounds else {}).items():
            shown = [(x, round(y, 4)) for x, y in points]
            self._report.curves.append(Curve(workload.code, title, system.name, store, across, up, shown))


def _smaller(size: Mapping[str, Any], elsewhere: Mapping[str, Any]) -> dict[str, Any]:
    return {name: min(size[name], limit) for name, limit in elsewhere.items()}
