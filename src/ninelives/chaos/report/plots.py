"""Draw bars, a histogram and a timeline as HTML and SVG. All text is escaped.

An SVG holds only shapes, because it is stretched to any width and would distort letters. Labels are HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from ninelives.views.escape import shown

WIDTH = 1000
_BUCKETS, _HIGH, _ROW = 40, 120, 11


class Bar(Struct, frozen=True):
    """A name and its count; `kind` is the CSS class that colours it."""

    name: str
    count: int
    kind: str = ""


class Mark(Struct, frozen=True):
    """A moment; `kind` is its CSS class, `row` its row in the figure (None: across all rows)."""

    at: float
    kind: str
    title: str
    row: int | None = None


class Span(Struct, frozen=True):
    """A stretch of a process's time, its row in the figure, and its CSS class."""

    row: int
    start: float
    end: float
    kind: str
    title: str


def bars(rows: Sequence[Bar], *, of: str, by: str) -> str:
    """Draw one bar per name. It is a real table, so that screen readers can read it."""
    most = max((row.count for row in rows), default=1)
    drawn = "".join(
        f'<tr><th scope="row">{plain(row.name)}</th><td><span class="bar {plain(row.kind)}" '
        f'style="width:{100 * row.count / most:.1f}%"></span></td><td class="n">{row.count}</td></tr>'
        for row in rows
    )
    head = f'<tr><th scope="col">{plain(by)}</th><td></td><th scope="col" class="n">{plain(of)}</th></tr>'
    return f'<table class="bars"><thead>{head}</thead><tbody>{drawn}</tbody></table>'


def histogram(values: Sequence[float], lines: Sequence[Mark], *, unit: str, label: str) -> str:
    """Draw the distribution of values, with a vertical line at each mark inside the range."""
    most = max(values, default=0.0) * 1.05 or 1.0
    counts = [0] * _BUCKETS
    for value in values:
        counts[min(_BUCKETS - 1, int(value / most * _BUCKETS))] += 1
    wide = WIDTH / _BUCKETS
    drawn = []
    for number, count in enumerate(counts):
        tall = count / max(counts) * _HIGH
        start, end = number * most / _BUCKETS, (number + 1) * most / _BUCKETS
        drawn.append(
            f'<rect class="column" x="{number * wide + 1:.1f}" y="{_HIGH - tall:.1f}" '
            f'width="{wide - 2:.1f}" height="{tall:.1f}">'
            f"<title>{start:.3f} to {end:.3f} {unit}: {count}</title></rect>"
        )
    drawn += [_line(mark, mark.at / most * WIDTH, 0, _HIGH) for mark in lines if mark.at <= most]
    ticks = "".join(f"<span>{share * most:.2f} {unit}</span>" for share in (0, 0.25, 0.5, 0.75, 1))
    return f'{_svg(_HIGH, "".join(drawn), label)}<div class="ticks" aria-hidden="true">{ticks}</div>'


def timeline(spans: Sequence[Span], marks: Sequence[Mark], seconds: float, *, label: str) -> str:
    """Draw the processes of a trial in time, one below the other, with the injected faults."""
    scale = WIDTH / max(seconds, 0.001)
    high = _ROW * (1 + max((span.row for span in spans), default=0))
    drawn = [
        f'<rect class="{plain(span.kind)}" x="{span.start * scale:.1f}" y="{span.row * _ROW + 1}" '
        f'width="{max(1.5, (span.end - span.start) * scale):.1f}" height="{_ROW - 2}">'
        f"<title>{plain(span.title)}</title></rect>"
        for span in spans
    ]
    for mark in marks:
        top, bottom = (0, high) if mark.row is None else (mark.row * _ROW, (mark.row + 1) * _ROW)
        drawn.append(_line(mark, mark.at * scale, top, bottom))
    return _svg(high, "".join(drawn), label)


def _line(mark: Mark, x: float, top: float, bottom: float) -> str:
    return (
        f'<line class="mark {plain(mark.kind)}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}">'
        f"<title>{plain(mark.title)}</title></line>"
    )


def _svg(height: float, inside: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" height="{height:.0f}" preserveAspectRatio="none" '
        f'role="img" aria-label="{plain(label)}" xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def plain(text: str) -> str:
    """Escape text for HTML, control characters included."""
    return escape(shown(text))
