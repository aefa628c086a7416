"""Plots as SVG, drawn by hand: bars, a histogram, and the timeline of a trial. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from msgspec import Struct

from ninelives.ops.escape import shown

WIDTH = 760
_ROW, _LABEL = 18, 250


class Mark(Struct, frozen=True):
    """Something that happened at a moment, and its class, which gives it a colour."""

    at: float
    kind: str
    title: str


class Span(Struct, frozen=True):
    """A life: from when to when, and how it ended."""

    start: float
    end: float
    kind: str
    title: str


def bars(rows: Sequence[tuple[str, int]], *, of: str) -> str:
    """Draw a row for each name, as long as its count."""
    most = max((count for _, count in rows), default=1)
    scale = (WIDTH - _LABEL - 60) / max(1, most)
    drawn = []
    for number, (name, count) in enumerate(rows):
        y = number * _ROW
        drawn.append(
            f'<text class="label" x="{_LABEL - 8}" y="{y + 13}">{_short(name, 40)}'
            f"<title>{plain(name)}</title></text>"
            f'<rect class="bar" x="{_LABEL}" y="{y + 3}" width="{max(1.0, count * scale):.1f}" '
            f'height="12"><title>{plain(name)}: {count} {plain(of)}</title></rect>'
            f'<text class="count" x="{_LABEL + count * scale + 6:.1f}" y="{y + 13}">{count}</text>'
        )
    return _svg(len(rows) * _ROW + 4, "".join(drawn), f"{of} by name")


def histogram(values: Sequence[float], *, limit: float, unit: str, buckets: int = 40) -> str:
    """Draw how values are spread, and where the limit is if it is near."""
    if not values:
        return ""
    most = max(values) * 1.05 or 1.0
    counts = [0] * buckets
    for value in values:
        counts[min(buckets - 1, int(value / most * buckets))] += 1
    high, wide = 140, (WIDTH - 60) / buckets
    drawn = []
    for number, count in enumerate(counts):
        tall = count / max(counts) * high
        start, end = number * most / buckets, (number + 1) * most / buckets
        drawn.append(
            f'<rect class="bar" x="{30 + number * wide:.1f}" y="{high - tall + 10:.1f}" '
            f'width="{wide - 1:.1f}" height="{tall:.1f}">'
            f"<title>{start:.3f} to {end:.3f} {unit}: {count}</title></rect>"
        )
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = 30 + share * (WIDTH - 60)
        drawn.append(f'<text class="tick" x="{x:.1f}" y="{high + 26}">{share * most:.2f} {unit}</text>')
    if limit <= most:
        x = 30 + limit / most * (WIDTH - 60)
        drawn.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{high + 10}"/>')
    return _svg(high + 34, "".join(drawn), "how recovery times are spread")


def timeline(spans: Sequence[Span], marks: Sequence[Mark], seconds: float) -> str:
    """Draw the lives of a trial one beneath the other in time, with what happened in them."""
    scale = (WIDTH - 20) / max(seconds, 0.001)
    rows = min(4, len(spans)) or 1
    drawn = []
    for number, span in enumerate(spans):
        y = 4 + (number % rows) * 11
        drawn.append(
            f'<rect class="life {plain(span.kind)}" x="{10 + span.start * scale:.1f}" y="{y}" '
            f'width="{max(1.5, (span.end - span.start) * scale):.1f}" height="9" rx="2">'
            f"<title>{plain(span.title)}</title></rect>"
        )
    high = 4 + rows * 11
    for mark in marks:
        x = 10 + mark.at * scale
        drawn.append(
            f'<path class="mark {plain(mark.kind)}" d="M{x:.1f} {high} l-3 7 h6 z">'
            f"<title>{plain(mark.title)}</title></path>"
        )
    return _svg(high + 10, "".join(drawn), "lives and faults in time")


def _svg(height: float, inside: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{plain(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def plain(text: str) -> str:
    """Return text that is nothing but text in a page."""
    return escape(shown(text))


def _short(text: str, characters: int) -> str:
    return plain(text if len(text) <= characters else f"{text[: characters - 1]}…")
