"""The report on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.metrics import Number
from ninelives.chaos.report.terminal import show_numbers, unended
from ninelives.chaos.trial.trial import Trial


@pytest.mark.parametrize("width", [40, 76, 120])
def test_whether_a_target_was_missed_is_said_however_narrow_the_terminal(width: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=width, color_system=None)
    show_numbers(console, [Number("recovery time p99", "12.345 s", "< 30 s", False, "of 12 " * 12)])
    assert isinstance(console.file, StringIO)
    told = console.file.getvalue()
    for word in ("recovery time p99", "12.345 s", "< 30 s", "MISSED"):
        assert word in told


def test_runs_that_did_not_end_for_one_reason_are_told_of_once() -> None:
    runs = [Trial(name, 0, 0.0) for name in ("killed", "store's answer lost", "hung")]
    for run, why in zip(runs, ("it diverged", "it diverged", "it waits"), strict=True):
        run.why = why
    assert unended(Campaign([], runs, [])) == [
        "the run that was killed, and 1 more, did not end: it diverged",
        "the run that hung did not end: it waits",
    ]
