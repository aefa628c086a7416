"""The report on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ninelives.demo.judge import Number
from ninelives.demo.screen import show_numbers


@pytest.mark.parametrize("width", [40, 76, 120])
def test_whether_a_target_was_missed_is_said_however_narrow_the_terminal(width: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=width, color_system=None)
    show_numbers(console, [Number("recovery time p99", "12.345 s", "< 30 s", False, "of 12 " * 12)])
    assert isinstance(console.file, StringIO)
    told = console.file.getvalue()
    for word in ("recovery time p99", "12.345 s", "< 30 s", "MISSED"):
        assert word in told
