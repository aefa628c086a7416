"""The results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from benchmarks.figures import Figure, Report, cleaned, number
from benchmarks.targets import Verdict
from benchmarks.workloads import WORKLOADS


def tables(report: Report) -> Iterator[Table]:
    """Return a table for each workload, then one of what is missing."""
    for workload in WORKLOADS.values():
        figures = [figure for figure in report.figures if figure.workload == workload.code]
        if not figures:
            continue
        table = Table(title=f"{workload.code}: {workload.title}", title_justify="left")
        for column in ("system", "store", "what", "median", "rounds from … to", "x raw"):
            table.add_column(column)
        for figure in figures:
            table.add_row(*row(figure))
        yield table
    if report.absences:
        table = Table(title="Not measured", title_justify="left")
        for column in ("workload", "system", "store", "reason"):
            table.add_column(column)
        for absence in report.absences:
            table.add_row(absence.workload, absence.system, absence.store, escape(cleaned(absence.reason)))
        yield table


def row(figure: Figure) -> tuple[str, ...]:
    """Return a figure in words."""
    return (
        figure.system,
        figure.store,
        figure.metric,
        f"{number(figure.median)} {figure.unit}",
        spread(figure),
        number(figure.ratio) if figure.ratio is not None else "",
    )


def spread(figure: Figure) -> str:
    """Return the smallest and the largest round."""
    if len(figure.values) < 2:
        return ""
    return f"{number(min(figure.values))} … {number(max(figure.values))}"


def target_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the targets and whether they are met."""
    table = Table(title="Targets", title_justify="left")
    for column in ("", "what", "target", "measured", ""):
        table.add_column(column)
    for verdict in verdicts:
        colour = "green" if verdict.is_met else "red" if verdict.is_missed else "yellow"
        word = f"[{colour}]{escape(verdict.word)}[/]"
        table.add_row(verdict.workload, verdict.what, verdict.target, verdict.measured, word)
    return table
