"""What the benchmarks make of what they measured: ratios, verdicts, the page, its plots; no timings."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks import arena, figures, page, plots, processes, servers, systems
from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.figures import Absence, Curve, Figure, Report, number, percentile
from benchmarks.places import SqlitePlace
from benchmarks.progress import Watch
from benchmarks.workloads import WORKLOADS
from rich.console import Console

from tests.crash.processes import until


def figure(workload: str, metric: str, system: str, store: str, *values: float, raw: float = 0.0) -> Figure:
    limits = [raw] * len(values) if raw else []
    return Figure(workload, metric, "steps/s", system, store, list(values), limits)


def report() -> Report:
    made = figures.begin("python -m benchmarks --test")
    made.figures = [
        figure("W1", "steps", "Nine Lives", "sqlite", 700, 900, 800, raw=1000),
        figure("W1", "steps", "Nine Lives", "postgresql", 100, raw=1000),
        figure("W2", "steps", "Nine Lives", "sqlite", 9500, raw=1000),
        figure("W12", "one run", "Nine Lives", "sqlite", 0.98),
    ]
    points = [(1.0, 0.9), (1_000_000.0, 0.88)]
    made.curves = [Curve("W12", "one run", "Nine Lives", "sqlite", "steps", "x raw", points)]
    made.versions = {"Nine Lives": ""}
    return made


def beside_peers() -> Report:
    made = report()
    made.versions["DBOS"] = "dbos==3.3.0"
    made.figures.append(figure("W2", "steps", "DBOS", "sqlite", 200, 300, raw=1000))
    made.absences.append(Absence("W4", "DBOS", "sqlite", "nobody restarts it"))
    return made


def test_figures_are_medians_of_ratios_to_the_limits_of_their_own_rounds() -> None:
    one = Figure("W1", "steps", "steps/s", "us", "sqlite", [100, 400, 250], [1000, 1000, 500])
    assert (one.median, one.ratio) == (250, 0.4)
    assert figure("W4", "seconds", "us", "sqlite", 1.0).ratio is None


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([7.0], 99) == 7


def test_numbers_are_written_with_the_digits_that_count() -> None:
    assert [number(value) for value in (0, 0.0123, 0.5, 4.567, 45.67, 4567.8)] == [
        "0", "0.012", "0.50", "4.57", "45.7", "4,568",
    ]  # fmt: skip


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = beside_peers()
    figures.write(made, tmp_path / "deep" / "report.json")
    assert figures.read(tmp_path / "deep" / "report.json") == made


def test_the_page_shows_verdicts_figures_absences_and_plots_that_exist(tmp_path: Path) -> None:
    sources = [tmp_path / "ours.json", tmp_path / "peers.json"]
    figures.write(report(), sources[0])
    figures.write(beside_peers(), sources[1])
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "old.svg").write_text("stale", encoding="utf-8")
    page.write(tmp_path, sources)
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "| W1 | PostgreSQL against raw commits | ≥ 0.7 x | 0.10 x | **missed** |" in text
    assert "| Nine Lives | sqlite | 800 (700 … 900), **0.80 x raw** |" in text
    assert "| W4 | DBOS | sqlite | nobody restarts it |" in text
    shown = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert len(shown) == 4
    assert text.count("`python -m benchmarks --test`") >= 2
    assert "| W10 | SQLite, p99 | ≤ 500 ms |  | **not measured** |" in text
    assert "nearly all of it for the update of the run's" in text
    assert {tmp_path / name for name in shown} == set((tmp_path / "benchmarks").iterdir())
    for name in shown:
        assert ET.parse(tmp_path / name).getroot().tag.endswith("svg")


def test_a_page_needs_something_that_was_measured(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make bench"):
        page.write(tmp_path, [tmp_path / "none.json"])


def test_bars_far_apart_are_drawn_on_a_logarithmic_scale() -> None:
    def widths(*values: float) -> list[float]:
        drawn = plots.bars("t", "ms", [plots.Bar("<b>", value, value, value, False) for value in values])
        rects = ET.fromstring(drawn).findall("{http://www.w3.org/2000/svg}rect")[1:]
        return [float(rect.attrib["width"]) for rect in rects]

    near = widths(10, 5)
    assert near[0] == pytest.approx(near[1] * 2)
    far = widths(1000, 1)
    assert far[0] < far[1] * 1000
    assert widths(0, 0) == [1, 1]


def test_lines_are_drawn_within_the_picture() -> None:
    drawn = plots.lines("t", "x", "y", [plots.Line("a", [(1, 5), (10_000, 7)]), plots.Line("b", [(1, 0)])])
    for line in ET.fromstring(drawn).findall("{http://www.w3.org/2000/svg}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 760
            assert 0 <= y <= 300


def test_every_workload_has_a_name_of_its_own_and_both_sizes() -> None:
    assert [int(code[1:]) for code in WORKLOADS] == list(range(14))
    assert len({one.name for one in WORKLOADS.values()}) == len(WORKLOADS)
    for one in WORKLOADS.values():
        assert one.size.keys() == one.quick.keys()


def _failing(cell: Cell) -> Round:
    if not cell.system.is_ours:
        raise processes.Failed("exit 1: no")
    return Round({"steps": 500.0})


WORKLOAD = Workload(
    "W1", "x", "x", _failing, {"steps": Metric("steps/s", is_rate=True)}, {}, {}, has_peers=True
)
PEER = systems.System("Peer", "nowhere", ("sqlite",), "any", packages=("x==1",), excuses={"W2": "cannot"})


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlitePlace, "limit", lambda place, count: 1000.0)


def test_what_a_peer_cannot_do_is_written_down_with_its_reason(tmp_path: Path) -> None:
    made = figures.begin("test")
    place = arena.Arena(tmp_path / "arena", made, Watch(Console(quiet=True), 1))
    (tmp_path / "arena").mkdir()
    both = [systems.OURS, PEER]
    place.measure(WORKLOAD, both, ["sqlite"], 2, {})
    idle = Workload("W2", "y", "y", _failing, WORKLOAD.metrics, {}, {}, has_peers=True)
    place.measure(idle, both, ["sqlite"], 1, {})
    place.close()
    assert [(one.workload, one.reason) for one in made.absences] == [
        ("W1", "failed: exit 1: no"), ("W2", "cannot"),
    ]  # fmt: skip
    ours = made.find("W1", "steps", "sqlite")
    assert ours is not None
    assert ours.values == [500, 500]
    assert ours.limits == [1000, 1000]
    assert not (tmp_path / "arena").exists()


def test_what_we_cannot_do_is_written_down_too_and_nothing_is_left(tmp_path: Path) -> None:
    def fail(cell: Cell) -> Round:
        raise TimeoutError("never")

    made = figures.begin("test")
    place = arena.Arena(tmp_path, made, Watch(Console(quiet=True), 1))
    place.measure(Workload("W1", "x", "x", fail, {}, {}, {}), [systems.OURS], ["sqlite"], 3, {})
    assert [one.reason for one in made.absences] == ["failed: TimeoutError: never"]
    place.close()
    assert not tmp_path.exists()


def test_a_round_that_fails_is_noted_and_the_good_ones_are_kept(tmp_path: Path) -> None:
    rounds = iter([1.0, None, 3.0])

    def play(cell: Cell) -> Round:
        if (value := next(rounds)) is None:
            raise processes.Failed("\x1b[31mbroken\x1b[0m\n  twice")
        return Round({"steps": value})

    made = figures.begin("test")
    place = arena.Arena(tmp_path, made, Watch(Console(quiet=True), 1))
    place.measure(Workload("W1", "x", "x", play, WORKLOAD.metrics, {}, {}), [systems.OURS], ["sqlite"], 3, {})
    place.close()
    kept = made.find("W1", "steps", "sqlite")
    assert kept is not None
    assert (kept.values, len(kept.limits)) == ([1.0, 3.0], 2)
    assert [one.reason for one in made.absences] == ["1 of 3 rounds failed: broken twice"]


def test_rounds_before_a_stop_are_kept(tmp_path: Path) -> None:
    rounds = iter([1.0])

    def play(cell: Cell) -> Round:
        try:
            return Round({"steps": next(rounds)})
        except StopIteration:
            raise KeyboardInterrupt from None

    made = figures.begin("test")
    place = arena.Arena(tmp_path, made, Watch(Console(quiet=True), 1))
    one = Workload("W1", "x", "x", play, WORKLOAD.metrics, {}, {})
    with pytest.raises(KeyboardInterrupt):
        place.measure(one, [systems.OURS], ["sqlite"], 3, {})
    place.close()
    kept = made.find("W1", "steps", "sqlite")
    assert kept is not None
    assert kept.values == [1.0]


def test_a_program_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    nap = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.read()"
    )
    with processes.started([sys.executable, "-c", nap], log=tmp_path / "log", is_told=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
    until(lambda: _state(child) in ("", "Z"))  # a killed process ends when it is next scheduled


def _state(pid: int) -> str:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout[:1].strip()


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(processes.Failed, match="exit 3: it is broken"):
        processes.run(
            [sys.executable, "-c", "import sys; print('it is broken', file=sys.stderr); sys.exit(3)"],
            log=tmp_path / "log",
        )


def test_ports_in_a_row_are_free_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    first = servers.free_ports(7)
    with closing(socket.socket()) as taken:
        taken.bind(("", first + 2))
        offered = iter([first, first + 1, first + 3])
        monkeypatch.setattr("benchmarks.servers.random.choice", lambda _: next(offered))
        assert servers.free_ports(4) == first + 3
