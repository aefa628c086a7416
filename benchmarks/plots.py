"""Plots as SVG: bars and lines, drawn by hand. Colours are told apart without red against green."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from benchmarks.figures import number

_COLOURS = ("#0b5fa5", "#d9822b", "#5a5a5a", "#7a4fb5", "#1b9e9e", "#b5446e", "#8a7a2f", "#333366")
_FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="#222"'
_WIDTH = 760


class Bar(NamedTuple):
    """A bar with its spread."""

    label: str
    value: float
    low: float
    high: float
    is_ours: bool


class Line(NamedTuple):
    """A line with its points."""

    label: str
    points: Sequence[tuple[float, float]]


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Draw horizontal bars, on a logarithmic scale when they are far apart."""
    largest, smallest = max(bar.high for bar in rows), min(bar.value for bar in rows)
    is_log = smallest > 0 and largest / smallest > 20
    left, right, top, each = 200, 110, 44, 26
    room = _WIDTH - left - right
    floor = 10 ** math.floor(math.log10(smallest)) if is_log else 0.0

    def across(value: float) -> float:
        if is_log:
            return room * math.log(max(value, floor) / floor) / math.log(largest / floor)
        return room * value / largest if largest else 0.0

    parts = [_text(left, 20, f"{title}, {unit}" + (" (logarithmic)" if is_log else ""), weight="600")]
    for index, bar in enumerate(rows):
        y = top + index * each
        middle = y + 9
        parts += [
            _text(left - 8, middle + 4, bar.label, anchor="end", weight="600" if bar.is_ours else "400"),
            f'<rect x="{left}" y="{y}" width="{max(across(bar.value), 1):.1f}" height="18"'
            f' fill="{_COLOURS[0] if bar.is_ours else "#a9b4bf"}"/>',
            _stroke(left + across(bar.low), middle, left + across(bar.high), middle),
            _text(left + max(across(bar.high), across(bar.value)) + 6, middle + 4, number(bar.value)),
        ]
    return _svg(top + len(rows) * each + 10, title, parts)


def lines(title: str, across: str, up: str, drawn: Sequence[Line]) -> str:
    """Draw lines from zero upwards; sideways logarithmic when the points are far apart."""
    left, right, top, height = 70, 190, 44, 240
    xs = [x for line in drawn for x, _ in line.points]
    ceiling = _ceiling(max((y for line in drawn for _, y in line.points), default=1.0))
    is_log = min(xs) > 0 and max(xs) / min(xs) > 50
    room = _WIDTH - left - right

    def place(x: float, y: float) -> tuple[float, float]:
        scale = math.log if is_log else float
        low, high = scale(min(xs)), scale(max(xs))
        share = (scale(x) - low) / (high - low) if high > low else 0.5
        return left + room * share, top + height * (1 - y / ceiling)

    parts = [_text(left, 20, title, weight="600"), _text(left, 36, f"{up}, by {across}")]
    for tick in range(5):
        value = ceiling * tick / 4
        _, y = place(min(xs), value)
        parts.append(_stroke(left, y, left + room, y, colour="#ddd"))
        parts.append(_text(left - 6, y + 4, number(value), anchor="end"))
    parts += [
        _text(place(x, 0)[0], top + height + 16, f"{x:,.0f}", anchor="middle")
        for x in _ticks(sorted(set(xs)))
    ]
    for index, line in enumerate(drawn):
        colour = _COLOURS[index % len(_COLOURS)]
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line.points)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        legend = top + 12 + index * 18
        parts.append(
            _stroke(left + room + 14, legend - 4, left + room + 34, legend - 4, colour=colour, width=3)
        )
        parts.append(_text(left + room + 40, legend, line.label))
    return _svg(top + height + 28, title, parts)


def _ticks(xs: Sequence[float], most: int = 6) -> Sequence[float]:
    step = max(math.ceil(len(xs) / most), 1)
    return [*xs[:-1:step], xs[-1]] if len(xs) <= most else [xs[0], *xs[step - 1 :: step]]


def _ceiling(value: float) -> float:
    """Return a round number that is not smaller."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(
        size * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if size * factor >= value * 0.999999
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {place} {_FONT}>{escape(text)}</text>"


def _stroke(x1: float, y1: float, x2: float, y2: float, *, colour: str = "#222", width: float = 1.0) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    size = f'width="{_WIDTH}" height="{height:.0f}" viewBox="0 0 {_WIDTH} {height:.0f}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title, quote=True)}">'
    )
    body = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join((head, body, *parts, "</svg>", ""))
