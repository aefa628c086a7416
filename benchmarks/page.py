"""docs/benchmarks.md, its plots and docs/benchmarks.json, written from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import plots, remarks
from benchmarks.cells import Workload
from benchmarks.figures import Curve, Figure, Report, number, read
from benchmarks.tables import spread
from benchmarks.targets import Verdict, judge_all
from benchmarks.workloads import WORKLOADS


def write(docs: Path, sources: Sequence[Path]) -> list[Verdict]:
    """Write the page from the sessions that there are: the first is ours alone, the second has the peers.

    Returns the verdicts on it.
    Raises FileNotFoundError when there are none.
    """
    reports = [read(path) for path in sources if path.exists()]
    if not reports:
        raise FileNotFoundError(f"nothing was measured yet: run `make bench` ({sources[0]} is missing)")
    folder = docs / "benchmarks"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, drawing in drawings(reports):
        (folder / name).write_text(drawing, encoding="utf-8")
    (docs / "benchmarks.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(reports), indent=1) + b"\n"
    )
    (docs / "benchmarks.md").write_text("\n".join(text(reports)), encoding="utf-8")
    return judge_all(reports)


def text(reports: Sequence[Report]) -> Iterator[str]:
    """Return the lines of the page."""
    yield "# What it costs, measured\n"
    yield from remarks.sessions(reports)
    yield remarks.PREFACE
    yield from remarks.targets(judge_all(reports))
    yield from remarks.ahead(reports)
    for workload in WORKLOADS.values():
        yield from _section(workload, reports)
    yield from remarks.systems(reports)


def _section(workload: Workload, reports: Sequence[Report]) -> Iterator[str]:
    sections = [
        (index, [figure for figure in report.figures if figure.workload == workload.code])
        for index, report in enumerate(reports)
    ]
    yield f"\n## {workload.code}: {workload.title}\n"
    if not any(figures for _, figures in sections):
        yield "Not measured in these sessions."
        return
    if workload.code in remarks.NOTES:
        yield remarks.NOTES[workload.code] + "\n"
    for index, figures in sections:
        if not figures:
            continue
        if reports[index].has_peers:
            yield "\nBeside its peers, in one session:\n"
        yield from _table(workload, figures)
        for name, title, _ in _plots(workload, reports[index], _stem(workload, index)):
            yield f"\n![{title}](benchmarks/{name})"
    if why := remarks.no_peers(workload, reports):
        yield f"\n{why}"


def _table(workload: Workload, figures: Sequence[Figure]) -> Iterator[str]:
    names = [name for name in workload.metrics if any(figure.metric == name for figure in figures)]
    yield remarks.rounds_of(figures, workload) + "\n"
    most = max(len(figure.values) for figure in figures)
    heads = [f"{name}, {workload.metrics[name].unit}" for name in names]
    yield f"| system | store | {' | '.join(heads)} |"
    yield f"| --- | --- |{' --- |' * len(names)}"
    pairs = list(dict.fromkeys((one.system, one.store) for one in figures if one.metric != remarks.LIMIT))
    for system, store in pairs:
        found = {one.metric: one for one in figures if (one.system, one.store) == (system, store)}
        cells = [_cell(found.get(name), most) for name in names]
        yield f"| {system} | {store} | {' | '.join(cells)} |"
    yield from remarks.limits(figures)


def _cell(figure: Figure | None, most: int) -> str:
    """Write a figure with its spread, and its rounds where others of the table have more."""
    if figure is None:
        return ""
    count = f"n = {len(figure.values)}" if len(figure.values) < most else ""
    around = ", ".join(part for part in (spread(figure), count) if part)
    ratio = f", **{number(figure.ratio)} x raw**" if figure.ratio is not None else ""
    return f"{number(figure.median)}{f' ({around})' if around else ''}{ratio}"


def _plots(workload: Workload, report: Report, stem: str) -> Iterator[tuple[str, str, str]]:
    """Return the plots of a workload: file name, title, drawing. Bars where there are peers; curves."""
    for index, (name, metric) in enumerate(workload.metrics.items() if report.has_peers else ()):
        rows = _rows(report, workload, name)
        if len(rows) > 1:
            title = f"{workload.code}: {name}"
            yield f"{stem}-{index}.svg", title, plots.bars(title, metric.unit, rows)
    curves = [curve for curve in report.curves if curve.workload == workload.code]
    if curves:
        title = f"{workload.code}: {workload.title}"
        yield f"{stem}-curve.svg", title, plots.lines(title, *workload.curve, _lines(curves))


def _stem(workload: Workload, index: int) -> str:
    return f"{workload.code.lower()}-{index + 1}"


def drawings(reports: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """Return the plots by file name."""
    for index, report in enumerate(reports):
        for workload in WORKLOADS.values():
            for name, _, drawing in _plots(workload, report, _stem(workload, index)):
                yield name, drawing


def _lines(curves: Sequence[Curve]) -> list[plots.Line]:
    """Label each curve by what tells it from the others."""
    has_titles = len({curve.title for curve in curves}) > 1
    has_systems = len({curve.system for curve in curves}) > 1
    return [
        plots.Line(
            ", ".join([curve.system] * has_systems + [curve.store] + [curve.title] * has_titles), curve.points
        )
        for curve in curves
    ]


def _rows(report: Report, workload: Workload, metric: str) -> list[plots.Bar]:
    rows = [
        plots.Bar(
            f"{figure.system}, {figure.store}",
            figure.median,
            min(figure.values),
            max(figure.values),
            figure.system == "Nine Lives",
        )
        for figure in report.figures
        if (figure.workload, figure.metric) == (workload.code, metric)
    ]
    is_less_better = workload.metrics[metric].is_less_better
    return sorted(rows, key=lambda bar: bar.value, reverse=not is_less_better)
