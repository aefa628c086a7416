"""The lists of commands: each short help is a whole sentence at 80 columns."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ninelives.cli.app import app


@pytest.mark.parametrize("words", [[], ["store"]])
def test_no_short_help_is_cut_at_80_columns(words: list[str]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    assert "Usage" in shown
    assert [line for line in shown.splitlines() if line.endswith("...") and "Usage" not in line] == []
